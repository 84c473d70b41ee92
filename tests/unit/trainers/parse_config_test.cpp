#include "troupe/trainers/parse_config.hpp"

#include <cmath>
#include <fstream>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/trainers/torch/groups/torch_config.hpp"

namespace troupe::internal::parse_config_cases {

using namespace test;

namespace {

enum class rule { sgd, adam };

struct optimizer_fields {
  double lr = 0.1;
  rule kind = rule::adam;
  TROUPE_FIELDS(lr, kind)
};

struct config {
  int epochs = 3;
  std::uint8_t small = 7;
  float clip = 1;
  bool shuffle = false;
  std::string note = "none";
  fs::path data;
  std::optional<int> limit = 5;
  std::vector<int> layers{64, 32};
  std::array<double, 2> betas{0.9, 0.999};
  std::map<std::string, int> weights;
  std::vector<optimizer_fields> groups;
  optimizer_fields optimizer;
  TROUPE_FIELDS(epochs, small, clip, shuffle, note, data, limit, layers, betas,
                weights, groups, optimizer)
};

using words = std::vector<const char*>;

expected<parsed_fields> parsed(words arguments, words environment = {},
                               const parse_options& options = {}) {
  arguments.insert(arguments.begin(), "bin/program");
  environment.push_back(nullptr);
  return read_config(shape_of<config>(), to_config_value(config{}),
                     static_cast<int>(arguments.size()), arguments.data(),
                     environment.data(), options);
}

config value(words arguments, words environment = {}) {
  auto read = parsed(std::move(arguments), std::move(environment));
  if (!read) {
    ADD_FAILURE() << read.error().message;
    return {};
  }
  config result;
  assign_config(result, read->values);
  return result;
}

std::string problem(words arguments, words environment = {}) {
  auto read = parsed(std::move(arguments), std::move(environment));
  return read ? "none" : read.error().message;
}

class parse_config_test : public testing::Test {
protected:
  std::string file(const std::string& text) {
    auto path = (folder_.path() / "config.json").string();
    std::ofstream{path} << text;
    return path;
  }

  /// The error about a file with *text*, without the file's name.
  std::string file_problem(const std::string& text) {
    auto path = file(text);
    auto result = problem({"--config", path.c_str()});
    auto begin = result.find(path);
    return begin == result.npos ? result : result.erase(begin, path.size());
  }

private:
  temporary_folder folder_;
};

} // namespace

TEST_F(parse_config_test, without_options_the_defaults_stay) {
  auto x = value({});
  EXPECT_EQ(x.epochs, 3);
  EXPECT_EQ(x.limit, 5);
  EXPECT_EQ(x.layers, (std::vector{64, 32}));
}

TEST_F(parse_config_test, reads_every_kind_of_field) {
  auto x = value({"--epochs",
                  "1e3",
                  "--small=255",
                  "--clip",
                  "-2.5",
                  "--shuffle",
                  "--note",
                  "a=b",
                  "--data=/d",
                  "--limit=",
                  "--layers",
                  "1,2,3",
                  "--betas=[0.5,1]",
                  "--weights",
                  R"({"a":1})",
                  "--groups",
                  R"([{"lr":2},{"kind":"sgd"}])",
                  "--optimizer.lr",
                  "1e-3",
                  "--optimizer.kind=sgd"});
  EXPECT_EQ(x.epochs, 1000);
  EXPECT_EQ(x.small, 255);
  EXPECT_EQ(x.clip, -2.5f);
  EXPECT_TRUE(x.shuffle);
  EXPECT_EQ(x.note, "a=b");
  EXPECT_EQ(x.data, "/d");
  EXPECT_EQ(x.limit, std::nullopt);
  EXPECT_EQ(x.layers, (std::vector{1, 2, 3}));
  EXPECT_EQ(x.betas, (std::array{0.5, 1.0}));
  EXPECT_EQ(x.weights.at("a"), 1);
  ASSERT_EQ(x.groups.size(), 2u);
  EXPECT_EQ(x.groups[0].lr, 2);
  EXPECT_EQ(x.groups[0].kind, rule::adam);
  EXPECT_EQ(x.groups[1].kind, rule::sgd);
  EXPECT_EQ(x.optimizer.lr, 1e-3);
  EXPECT_EQ(x.optimizer.kind, rule::sgd);
}

TEST_F(parse_config_test, a_flag_takes_a_value_only_if_one_follows) {
  EXPECT_FALSE(value({"--shuffle", "false"}).shuffle);
  EXPECT_TRUE(value({"--shuffle", "--epochs", "2"}).shuffle);
  EXPECT_EQ(problem({"--shuffle", "maybe"}),
            "--shuffle is a flag, but 'maybe' follows it: write --shuffle or "
            "--shuffle=false");
}

TEST_F(parse_config_test, the_command_line_wins_over_environment_and_file) {
  auto path =
    file(R"({"epochs":10,"note":"file","optimizer":{"lr":5},"limit":null})");
  auto x = value({"--config", path.c_str(), "--epochs=30"},
                 {"TROUPE_CONFIG_EPOCHS=20", "TROUPE_CONFIG_NOTE=variable",
                  "TROUPE_CONFIG_OPTIMIZER__KIND=sgd", "OTHER=1"});
  EXPECT_EQ(x.epochs, 30);
  EXPECT_EQ(x.note, "variable");
  EXPECT_EQ(x.optimizer.lr, 5);
  EXPECT_EQ(x.optimizer.kind, rule::sgd);
  EXPECT_EQ(x.limit, std::nullopt);
}

TEST_F(parse_config_test, minus_signs_in_names_are_read_as_underscores) {
  EXPECT_EQ(problem({"--no-such"}),
            problem({"--no_such"})); // The same, unknown, name.
}

TEST_F(parse_config_test, errors_of_the_command_line_name_the_field) {
  EXPECT_EQ(problem({"--epoch", "3"}),
            "there is no option '--epoch'; did you mean epochs?");
  EXPECT_EQ(problem({"--epochs"}), "--epochs has no value");
  EXPECT_EQ(problem({"--epochs", "--shuffle"}), "--epochs has no value");
  EXPECT_EQ(problem({"--epochs=1", "--epochs", "2"}),
            "--epochs is given twice");
  EXPECT_EQ(problem({"--epochs", "many"}),
            "--epochs: expected integer, got 'many'");
  EXPECT_EQ(problem({"--epochs", "1.5"}),
            "--epochs: expected integer, got '1.5'");
  EXPECT_EQ(problem({"--epochs", ""}), "--epochs: expected integer, got ''");
  EXPECT_EQ(problem({"--epochs", "3000000000"}),
            "--epochs: 3000000000 is out of range, -2147483648 to 2147483647");
  EXPECT_EQ(problem({"--small", "256"}),
            "--small: 256 is out of range, 0 to 255");
  EXPECT_EQ(problem({"--small", "-1"}),
            "--small: -1 is out of range, 0 to 255");
  EXPECT_EQ(problem({"--small", "1e99"}),
            "--small: 1e99 is out of range, 0 to 255");
  EXPECT_EQ(problem({"--clip", "1e39"}),
            "--clip: the number is out of range for a float");
  EXPECT_EQ(problem({"--optimizer.lr", "1e999"}),
            "--optimizer.lr: 1e999 is out of range");
  EXPECT_EQ(problem({"--optimizer.kind", "adamw"}),
            "--optimizer.kind: expected sgd|adam, got 'adamw'");
  EXPECT_EQ(problem({"--betas", "1,2,3"}),
            "--betas: expected list of number, 2 of them, got '1,2,3'");
  EXPECT_EQ(problem({"--layers", "1,x"}),
            "--layers: expected integer, got 'x'");
  EXPECT_EQ(problem({"--layers", "[1,\"x\"]"}),
            "--layers: 1: expected integer, got '\"x\"'");
  EXPECT_EQ(
    problem({"--weights", "{"}).find("--weights is not JSON: parse error at "),
    0u);
  EXPECT_EQ(problem({"3"}),
            "'3' is not an option: write --name value or --name=value");
}

TEST_F(parse_config_test, errors_of_the_environment_name_the_variable) {
  EXPECT_EQ(problem({}, {"TROUPE_CONFIG_EPOCH=3"}),
            "the variable TROUPE_CONFIG_EPOCH does not name a field; did you "
            "mean TROUPE_CONFIG_EPOCHS?");
  EXPECT_EQ(problem({}, {"TROUPE_CONFIG_EPOCHS=x"}),
            "TROUPE_CONFIG_EPOCHS: expected integer, got 'x'");
}

TEST_F(parse_config_test, errors_of_a_file_name_the_field) {
  EXPECT_EQ(file_problem(R"({"optimizer":{"rl":1}})"),
            ": there is no field 'optimizer.rl'; there is lr, kind");
  EXPECT_EQ(file_problem(R"({"epochs":"3"})"),
            ": epochs: expected integer, got '\"3\"'");
  EXPECT_EQ(file_problem(R"({"epochs":3000000000})"),
            ": epochs: 3000000000 is out of range, -2147483648 to 2147483647");
  EXPECT_EQ(file_problem(R"({"epochs":1,"epochs":2})"),
            ": 'epochs' is given twice");
  EXPECT_EQ(file_problem(R"({"groups":[{"lr":1,"x":2}]})"),
            ": there is no field 'groups.0.x'; there is lr, kind");
  EXPECT_EQ(file_problem("[]"), ": expected JSON object, got '[]'");
  EXPECT_EQ(file_problem("{").find(" is not JSON: parse error at "), 0u);
  EXPECT_NE(
    problem({"--config", "/nowhere/at/all.json"}).find("/nowhere/at/all.json"),
    std::string::npos);
}

TEST_F(parse_config_test, help_lists_all_fields_with_types_and_defaults) {
  auto help = parsed({"--help"}, {}, {.about = "Trains."})->help;
  EXPECT_EQ(help.find("usage: program [options]\nTrains.\n"), 0u) << help;
  for (auto line :
       {"--epochs          integer", "[3]\n", "--optimizer.lr    number",
        "[0.1]\n", "--optimizer.kind  sgd|adam", "[adam]\n",
        "--limit           integer, or nothing", "[[64,32]]\n",
        "TROUPE_CONFIG_EPOCHS"})
    EXPECT_NE(help.find(line), help.npos) << line << "\n" << help;
  EXPECT_EQ(parsed({"-h"})->help.empty(), false);
}

TEST_F(parse_config_test, a_path_may_begin_at_home) {
  ::setenv("HOME", "/home/me", 1);
  EXPECT_EQ(value({"--data", "~/d"}).data, "/home/me/d");
  EXPECT_EQ(value({"--data", "~x"}).data, "~x");
}

TEST_F(parse_config_test, two_fields_may_not_differ_in_case_only) {
  auto shape = shape_of<config>();
  shape.names[0] = "Note";
  auto values = to_config_value(config{});
  words arguments{"program"};
  EXPECT_THROW(static_cast<void>(
                 read_config(shape, values, 1, arguments.data(), nullptr, {})),
               std::logic_error);
}

struct derived_fields : optimizer_fields {
  int epochs = 2;
  TROUPE_FIELDS(lr, kind, epochs)
};

TEST_F(parse_config_test, a_config_may_list_the_fields_it_inherits) {
  char name[] = "program", option[] = "--lr=2";
  char* arguments[] = {name, option};
  EXPECT_EQ(parse_config<derived_fields>(2, arguments).lr, 2);
}

struct checked {
  int epochs = 1;
  TROUPE_FIELDS(epochs)

  void validate() const {
    if (epochs < 1)
      throw std::invalid_argument{"epochs must be at least 1"};
  }
};

TEST_F(parse_config_test, gives_a_run_its_options) {
  std::vector<std::string> text{"program", "--workers=3",    "--name",
                                "x",       "--epochs=2",     "--hosts",
                                "a,b",     "--max_failures", "-1"};
  std::vector<char*> arguments;
  for (auto& one : text)
    arguments.push_back(one.data());
  train_options run{.scaling = {.num_workers = 2},
                    .run = {.storage_path = "runs"}};
  run.scaling.workers_per_host = 4;
  auto x = parse_config<checked>(9, arguments.data(), run);
  EXPECT_EQ(x.epochs, 2);
  EXPECT_EQ(run.scaling.num_workers, 3);
  EXPECT_EQ(run.scaling.workers_per_host, 0) << "3 are all";
  EXPECT_EQ(run.scaling.hosts, std::vector<std::string>{"a,b"});
  EXPECT_FALSE(run.scaling.use_gpu);
  EXPECT_EQ(run.run.name, "x");
  EXPECT_EQ(run.run.storage_path, "runs");
  EXPECT_EQ(run.run.failure.max_failures, -1);
}

TEST_F(parse_config_test, the_help_of_a_sweep_leaves_out_what_it_refuses) {
  auto help = [](bool for_sweep) {
    auto shape = shape_of<checked>();
    auto values = to_config_value(checked{});
    add_launch_fields(shape, values, {}, 1, for_sweep);
    words arguments{"program", "--help"};
    return read_config(shape, std::move(values), 2, arguments.data(), nullptr,
                       {})
      ->help;
  };
  auto of_run = help(false), of_sweep = help(true);
  for (auto name :
       {"--if_finished ", "--hosts ", "--host_count ", "--agent_ticket "}) {
    EXPECT_NE(of_run.find(name), of_run.npos) << of_run;
    EXPECT_EQ(of_sweep.find(name), of_sweep.npos) << of_sweep;
  }
  EXPECT_NE(of_sweep.find("--storage "), of_sweep.npos) << of_sweep;
}

struct torch_fields {
  troupe::backend backend = troupe::backend::automatic;
  TROUPE_FIELDS(backend)
};

TEST_F(parse_config_test, a_program_may_have_an_option_for_the_backend) {
  char name[] = "program", option[] = "--backend=gloo";
  char* arguments[] = {name, option};
  EXPECT_EQ(parse_config<torch_fields>(2, arguments).backend, backend::gloo);
}

TEST_F(parse_config_test,
       options_that_are_not_given_stay_as_the_program_has_them) {
  char name[] = "program";
  char* arguments[] = {name};
  train_options run{.run = {.if_finished = if_finished::number,
                            .failure = {.max_failures = 3}}};
  parse_config<checked>(1, arguments, run);
  EXPECT_EQ(run.run.if_finished, if_finished::number);
  EXPECT_EQ(run.run.failure.max_failures, 3);
}

std::string scaled(std::initializer_list<const char*> options,
                   scaling_config x = {}) {
  auto shape = shape_of<launch_fields>();
  words arguments{options};
  arguments.insert(arguments.begin(), "program");
  auto launch = launch_of(x, run_config{});
  auto read = read_config(shape, to_config_value(launch),
                          static_cast<int>(arguments.size()), arguments.data(),
                          nullptr, {});
  if (!read)
    return read.error().message;
  assign_config(launch, read->values);
  auto fit = assign_launch(x, launch, [] { return expected<int>{4}; });
  if (!fit)
    return fit.error().message;
  return concat(option_text(x.num_workers), ' ', x.workers_per_host, ' ',
                x.min_hosts, ' ', x.max_hosts);
}

TEST_F(parse_config_test, a_run_may_have_ranges_of_ranks_and_hosts) {
  EXPECT_EQ(scaled({"--workers", "2:8"}), "2:8 0 0 0");
  EXPECT_EQ(scaled({"--workers_per_host=2", "--host_count=2:4"}), "1 2 2 4");
  EXPECT_EQ(scaled({"--gpu"}), "4 4 0 0");
  EXPECT_EQ(scaled({"--workers=3"}, {.workers_per_host = 2, .min_hosts = 1}),
            "3 0 0 0");
  EXPECT_EQ(scaled({}, {.workers_per_host = 2, .min_hosts = 1}), "1 2 1 0");
}

TEST_F(parse_config_test, a_program_that_uses_gpus_keeps_its_number_of_ranks) {
  EXPECT_EQ(scaled({}, {.num_workers = 2, .use_gpu = true}), "2 0 0 0");
  EXPECT_EQ(scaled({"--gpu"}, {.num_workers = {2, 8}, .use_gpu = true}),
            "2:8 0 0 0");
  EXPECT_EQ(scaled({}, {.workers_per_host = 1, .use_gpu = true}), "1 1 0 0");
  EXPECT_EQ(scaled({"--workers=3"}, {.num_workers = 2, .use_gpu = true}),
            "3 0 0 0");
  EXPECT_EQ(scaled({"--gpu"}, {.num_workers = 2}), "4 4 0 0");
}

TEST_F(parse_config_test, a_number_of_gpus_is_refused_in_one_sentence) {
  EXPECT_EQ(scaled({"--gpu", "1"}),
            "--gpu is a flag, but '1' follows it: write --gpu or --gpu=false");
}

TEST_F(parse_config_test, mistakes_in_ranges_are_one_sentence) {
  EXPECT_EQ(scaled({"--workers", "8:2"}),
            "--workers: FEWEST is above MOST in '8:2'");
  EXPECT_EQ(scaled({"--workers_per_host=1", "--host_count=3:2"}),
            "--host_count: FEWEST is above MOST in '3:2'");
  EXPECT_EQ(scaled({"--workers", "-1"}),
            "--workers: -1 is out of range, 0 to 2147483647");
  EXPECT_EQ(scaled({"--workers", "9999999999999"}),
            "--workers: 9999999999999 is out of range, 0 to 2147483647");
  EXPECT_EQ(scaled({"--workers", "0:2"}),
            "--workers: 0 is out of range, 1 to 2147483647");
  EXPECT_EQ(scaled({"--workers", "2:99999999999999999999"}),
            "--workers: 99999999999999999999 is out of range, 1 to "
            "2147483647");
  for (auto text : {"1.5", "2:", ":2", "2:x", "2:4:8", "-"})
    EXPECT_EQ(scaled({"--host_count", text}),
              concat("--host_count: expected integer or FEWEST:MOST, got '",
                     text, '\''));
  EXPECT_EQ(scaled({"--workers=2", "--workers_per_host=2"}),
            "--workers and --workers_per_host are both given: use one of them");
  EXPECT_EQ(scaled({"--workers=2", "--host_count=2"}),
            "--host_count counts hosts with --workers_per_host, but --workers "
            "is given: use --workers FEWEST:MOST");
  EXPECT_EQ(scaled({"--host_count=2"}),
            "--host_count counts hosts with --workers_per_host, which is not "
            "given");
  EXPECT_EQ(scaled({"--host_count=2"}, {.workers_per_host = 2}), "1 2 2 2");
}

TEST(parse_config_death_test, a_wrong_option_ends_the_program_with_2) {
  char name[] = "bin/program", option[] = "--epochs=0";
  char* arguments[] = {name, option};
  EXPECT_EXIT(parse_config<checked>(2, arguments), testing::ExitedWithCode(2),
              "^program: epochs must be at least 1 \\(--help lists");
}

struct looks_up {
  std::string device = "none";
  TROUPE_FIELDS(device)

  void validate() const {
    static_cast<void>(std::map<std::string, int>{{"cpu", 0}}.at(device));
  }
};

TEST(parse_config_death_test, any_exception_of_validate_ends_it_with_2) {
  char name[] = "bin/program";
  char* arguments[] = {name};
  EXPECT_EXIT(parse_config<looks_up>(1, arguments), testing::ExitedWithCode(2),
              "^program: .* \\(--help lists");
}

TEST_F(parse_config_test, any_exception_of_validate_refuses_a_trial) {
  looks_up x;
  auto ok = assign_texts(x, {{"device", "gpu"}}, true);
  ASSERT_FALSE(ok);
  EXPECT_EQ(ok.error().code, ec::invalid_config);
  EXPECT_TRUE(assign_texts(x, {{"device", "cpu"}}, true));
}

TEST(parse_config_death_test, help_lists_the_options_of_a_run) {
  char name[] = "program", option[] = "--help";
  char* arguments[] = {name, option};
  train_options run{.run = {.failure = {.max_failures = 3}}};
  auto print = [&] {
    ::dup2(STDERR_FILENO, STDOUT_FILENO); // which is what the test reads
    parse_config<checked>(2, arguments, run);
  };
  EXPECT_EXIT(print(), testing::ExitedWithCode(0),
              "--max_failures +integer +\\[3\\]\n");
}

TEST(parse_config_death_test, options_that_a_run_refuses_end_it_with_2) {
  auto parse = [](std::string option) {
    char name[] = "program";
    char* arguments[] = {name, option.data()};
    train_options run;
    parse_config<checked>(2, arguments, run);
  };
  EXPECT_EXIT(parse("--max_failures=-2"), testing::ExitedWithCode(2),
              "^program: run.failure.max_failures must be >= -1, got -2 ");
  EXPECT_EXIT(parse("--name=a/b"), testing::ExitedWithCode(2),
              "^program: run.name 'a/b' is not ");
  EXPECT_EXIT(parse("--storage="), testing::ExitedWithCode(2),
              "^program: run.storage_path is empty ");
  EXPECT_EXIT(parse("--workers=100000"), testing::ExitedWithCode(2),
              "^program: scaling.num_workers is 100000, a host has at most ");
  EXPECT_EXIT(parse("--workers=2:4"), testing::ExitedWithCode(2),
              "^program: scaling.num_workers is 2 to 4, but the run has one ");
}

} // namespace troupe::internal::parse_config_cases
