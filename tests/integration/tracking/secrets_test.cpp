// A whole run of a program with secrets in its environment: none of them may
// be in a rank, in the run's folder or in what is printed.

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>

#include <gmock/gmock.h>

#include <troupe/trackers.hpp>
#include <troupe/train.hpp>

#include "tests/support/sink_records.hpp"
#include "troupe/runtime/run_layout.hpp"

namespace troupe::internal::test {
namespace {

using testing::HasSubstr;

/// In the environment of the program, with a value that nothing else has.
constexpr std::array secrets{"WANDB_API_KEY",
                             "COMET_API_KEY",
                             "MLFLOW_TRACKING_TOKEN",
                             "DATABRICKS_TOKEN",
                             "AWS_SECRET_ACCESS_KEY",
                             "AWS_SESSION_TOKEN",
                             "HF_TOKEN",
                             "AZURE_CLIENT_SECRET",
                             "GOOGLE_API_KEY",
                             "MY_DATABASE_PASSWORD",
                             "API_KEY",
                             "TOKEN",
                             "KAGGLE_KEY",
                             "PGPASSWORD",
                             "GITHUB_PAT"};

/// What the program's own environment says of *name*, as long as W&B's keys.
std::string planted(const std::string& name) {
  auto result = "planted" + name;
  result.resize(40, 'x');
  return result;
}

/// What ranks are given on purpose, each a secret by its name or its place.
const std::map<std::string, std::string> given{
  {"MY_SERVICE_TOKEN", "asked-for-by-its-name"},
  {"MY_DATABASE_URL", "postgresql://me:asked-for-in-a-url@db/x"}};

struct config {
  std::string folder;
  bool fails = false;

  template <class Archive>
  void serialize(Archive& ar) {
    ar(folder, fails);
  }
};

void loop(train_context& context, const config& cfg) {
  std::ifstream kernel{"/proc/self/environ", std::ios::binary};
  std::string all{std::istreambuf_iterator<char>{kernel}, {}};
  for (auto variable = environ; *variable; ++variable)
    all += std::string{"\n"} + *variable;
  std::ofstream{cfg.folder + "/rank_" + std::to_string(context.rank())} << all;
  std::printf("rank %d has begun\n", context.rank());
  std::string all_given;
  for (auto& [name, value] : given)
    all_given += " and " + value.substr(value.find("asked"));
  std::printf("sent authorization: Bearer%s\n", all_given.c_str());
  auto tracker = start_tracking(context, {.project = "p"});
  tracker.log_params({{"lr", 0.1}});
  context.report({{"loss", 0.5}});
  if (cfg.fails)
    throw std::runtime_error{"refused" + all_given};
}

// Trackers on files, and one whose server is down and named with a password.
int run_with_trackers(const std::string& folder, bool fails) {
  run_config run;
  run.name = "run";
  run.storage_path = folder + "/runs";
  run.worker_env = given;
  run.quiet = fails; // The console shows what rank 0 prints as it is.
  using std::chrono::milliseconds;
  run.trackers = {result_json_tracker(), tensorboard_tracker(),
                  wandb_tracker({.mode = wandb_mode::offline}),
                  comet_tracker({.mode = comet_mode::offline}),
                  mlflow_tracker({}, {.finish_timeout = milliseconds{5000},
                                      .failing_timeout = milliseconds{0}})};
  auto result = data_parallel_trainer{
    loop,
    config{folder, fails},
    {.scaling = {.num_workers = 2},
     .run = run}}.fit();
  if (result.error)
    std::fprintf(stderr, "%s\n", result.error->message.c_str());
  return bool{result.error} == fails ? 0 : 1;
}

/// A run of its own program, with secrets in its environment; what it printed.
void run_program(const temporary_folder& folder, const char* mode) {
  auto server = "http://me:" + planted("PASSWORD") + "@127.0.0.1:1";
  std::string command = "env MLFLOW_TRACKING_URI='" + server + "'";
  for (std::string name : secrets)
    command += " " + name + "=" + planted(name);
  command += " MY_QUEUE=amqp://me:" + planted("QUEUE") + "@queue:5672";
  command += " /proc/" + std::to_string(::getpid()) + "/exe " + mode + " '"
             + folder.path().string() + "' > '" + (folder / "printed").string()
             + "' 2>&1";
  auto status = std::system(command.c_str());
  auto printed = bytes_of(folder / "printed");
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << printed;
}

std::vector<std::string> entries_of(const fs::path& path) {
  std::vector<std::string> result;
  boost::system::error_code code;
  for (fs::directory_iterator i{path, code}, end; !code && i != end;
       i.increment(code))
    result.push_back(i->path().filename().string());
  return result;
}

} // namespace

TEST(secrets_test, no_secret_of_the_program_gets_into_ranks_files_or_output) {
  temporary_folder folder;
  ASSERT_NO_FATAL_FAILURE(run_program(folder, "--run"));
  auto printed = bytes_of(folder / "printed");
  for (auto rank : {"rank_0", "rank_1"})
    EXPECT_THAT(bytes_of(folder / rank),
                HasSubstr("MY_SERVICE_TOKEN=asked-for-by-its-name"));
  // All trackers did what they do.
  EXPECT_THAT(printed, HasSubstr("mlflow"));
  for (auto name : {"metrics.csv", "report.html", "result.json", "wandb",
                    "comet", "logs/rank_1.log"})
    EXPECT_TRUE(fs::exists(folder.path() / "runs/run" / name)) << name;
  for (auto& x : entries_of(folder.path() / "runs/run"))
    EXPECT_TRUE(x == "metrics.csv" || run_layout::is_own_name(x)) << x;
  // Ranks, the run's files and the output are all below this folder.
  std::vector<std::string> values{planted("PASSWORD"), planted("QUEUE")};
  for (std::string name : secrets)
    values.push_back(planted(name));
  for (auto& value : values)
    EXPECT_THAT(files_with(folder.path(), value), testing::IsEmpty()) << value;
}

TEST(secrets_test, what_a_rank_says_of_its_secrets_stays_in_its_log) {
  temporary_folder folder;
  ASSERT_NO_FATAL_FAILURE(run_program(folder, "--fail"));
  EXPECT_THAT(bytes_of(folder / "printed"), HasSubstr("refused and ***"));
  auto run = folder.path() / "runs/run";
  EXPECT_THAT(bytes_of(run / "report.html"), HasSubstr("rank 0 has begun"));
  EXPECT_THAT(files_with(run / "wandb", "sent authorization: ***"),
              testing::SizeIs(1));
  // The logs are the user's own, and so is what its ranks wrote here.
  for (auto file : {"rank_0", "rank_1", "runs/run/logs/rank_0.log",
                    "runs/run/logs/rank_1.log"})
    EXPECT_TRUE(fs::remove(folder / file)) << file;
  EXPECT_THAT(files_with(folder.path(), "asked-for"), testing::IsEmpty());
}

} // namespace troupe::internal::test

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  std::string mode = argc > 2 ? argv[1] : "";
  if (mode == "--run" || mode == "--fail")
    return troupe::internal::test::run_with_trackers(argv[2], mode == "--fail");
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
