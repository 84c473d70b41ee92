#include "troupe/trainers/parse_config.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "troupe/runtime/near_names.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/trainers/config/config_reader.hpp"
#include "troupe/trainers/launch.hpp"
#include "troupe/trainers/run_request.hpp"

namespace troupe::internal {

namespace {

struct given_option {
  std::string name;
  std::string value;
};

/// What follows an option is its value, unless it is the next option; that of a
/// flag may be left out.
bool is_value(const config_shape* shape, std::string_view text) {
  if (shape && shape->kind == config_kind::flag)
    return text == "true" || text == "false";
  return !text.starts_with("--");
}

/// One option, from *next* on, which is moved beyond it.
expected<given_option> next_option(std::span<const char* const>& next,
                                   const std::vector<config_option>& all) {
  std::string text{next.front()};
  next = next.subspan(1);
  if (text == "-h")
    text = "--help";
  if (!text.starts_with("--") || text.size() == 2)
    return failure(ec::invalid_config, "'" + text
                                         + "' is not an option: write --name "
                                           "value or --name=value");
  auto sign = std::min(text.find('='), text.size());
  given_option x{text.substr(2, sign - 2), {}};
  std::ranges::replace(x.name, '-', '_');
  auto found = std::ranges::find(all, x.name, &config_option::name);
  auto shape = found == all.end() ? nullptr : found->shape;
  if (!shape && x.name != file_option && x.name != help_option)
    return failure(ec::invalid_config, "there is no option '--" + x.name + "'"
                                         + near_names(x.name, names_of(all)));
  if (sign < text.size()) {
    x.value = text.substr(sign + 1);
  } else if (x.name == help_option) {
    x.value.clear();
  } else if (!next.empty() && is_value(shape, next.front())) {
    x.value = next.front();
    next = next.subspan(1);
  } else if (shape && shape->kind == config_kind::flag) {
    if (!next.empty() && !std::string_view{next.front()}.starts_with('-'))
      return failure(ec::invalid_config,
                     concat("--", x.name, " is a flag, but '", next.front(),
                            "' follows it: write --", x.name, " or --", x.name,
                            "=false"));
    x.value = "true";
  } else {
    return failure(ec::invalid_config, "--" + x.name + " has no value");
  }
  return x;
}

expected<std::vector<given_option>>
given_options(int argc, const char* const* argv,
              const std::vector<config_option>& all) {
  std::vector<given_option> result;
  std::span next{argv, static_cast<std::size_t>(std::max(argc, 0))};
  if (!next.empty()) // the program
    next = next.subspan(1);
  while (!next.empty()) {
    TROUPE_TRY(auto x, next_option(next, all));
    if (std::ranges::find(result, x.name, &given_option::name) != result.end())
      return failure(ec::invalid_config, "--" + x.name + " is given twice");
    result.push_back(std::move(x));
  }
  return result;
}

std::string_view program_name(int argc, const char* const* argv) {
  if (argc < 1 || !argv[0])
    return "program";
  std::string_view path{argv[0]};
  return path.substr(path.rfind('/') + 1);
}

/// Ends the process with 0, or with 1 if *help* cannot be printed.
[[noreturn]] void exit_with_help(std::string_view program,
                                 const std::string& help) {
  auto code = EBADF;
  if (had_stdout()) {
    if (std::fputs(help.c_str(), stdout) >= 0 && std::fflush(stdout) == 0)
      std::exit(0);
    code = errno;
  }
  // A reader that has left has seen enough.
  if (code != EPIPE) {
    auto text =
      concat(program,
             ": cannot write to standard output: ", std::strerror(code), '\n');
    std::fputs(text.c_str(), stderr);
  }
  std::exit(1);
}

} // namespace

expected<parsed_fields> read_config(const config_shape& shape,
                                    config_value values, int argc,
                                    const char* const* argv,
                                    const char* const* environment,
                                    const parse_options& options) {
  auto all = options_of(shape, values);
  check_names(all);
  TROUPE_TRY(auto given, given_options(argc, argv, all));
  auto find = [&](std::string_view name) {
    return std::ranges::find(given, name, &given_option::name);
  };
  if (find(help_option) != given.end()) {
    auto help = help_text(all, program_name(argc, argv), options.about,
                          options.environment);
    return parsed_fields{std::move(values), std::move(help)};
  }
  if (auto file = find(file_option); file != given.end()) {
    TROUPE_TRY_VOID(read_file_into(shape, values, file->value));
    given.erase(file);
    all = options_of(shape, values); // They were replaced.
  }
  TROUPE_TRY_VOID(read_environment_into(all, environment, options.environment));
  for (auto& x : given) {
    auto& field = *std::ranges::find(all, x.name, &config_option::name);
    TROUPE_TRY(*field.value,
               value_from_text(*field.shape, "--" + x.name, x.value));
  }
  return parsed_fields{std::move(values), {}};
}

void exit_for_usage(int argc, const char* const* argv, std::string_view what) {
  auto text = concat(program_name(argc, argv), ": ", what,
                     " (--help lists all options)\n");
  std::fputs(text.c_str(), stderr);
  std::exit(2);
}

config_value read_config_or_exit(const config_shape& shape, config_value values,
                                 int argc, const char* const* argv,
                                 const parse_options& options) {
  auto result =
    read_config(shape, std::move(values), argc, argv, environ, options);
  if (!result)
    exit_for_usage(argc, argv, result.error().message);
  if (!result->help.empty())
    exit_with_help(program_name(argc, argv), result->help);
  return std::move(result->values);
}

void add_launch_fields(config_shape& shape, config_value& values,
                       const launch_fields& launch, const worker_count& workers,
                       bool for_sweep) {
  auto more = shape_of<launch_fields>();
  auto shape_for = [&more](std::string_view name) -> config_shape& {
    auto at = std::ranges::find(more.names, name) - more.names.begin();
    return more.parts.at(static_cast<std::size_t>(at));
  };
  shape_for("workers").initial =
    option_text(workers) + (launch.gpu ? "" : ", with --gpu one for each GPU");
  if (!launch.name)
    shape_for("name").initial = "a new one";
  if (launch.hosts.empty())
    shape_for("hosts").initial = "the nodes of a Slurm job, or this host";
  // They are still taken: the sweep says why it refuses them.
  if (for_sweep)
    for (auto name : {"if_finished", "hosts", "host_count", "agent_ticket"})
      shape_for(name).is_hidden = true;
  auto& all = std::get<config_value::table>(values.value);
  auto added = to_config_value(launch);
  for (auto& one : std::get<config_value::table>(added.value))
    all.push_back(std::move(one));
  std::ranges::move(more.names, std::back_inserter(shape.names));
  std::ranges::move(more.parts, std::back_inserter(shape.parts));
}

launch_fields launch_of(const scaling_config& scaling, const run_config& run) {
  launch_fields result;
  result.gpu = scaling.use_gpu;
  result.storage = run.storage_path;
  result.name = run.name;
  result.if_finished = run.if_finished;
  result.max_failures = run.failure.max_failures;
  result.hosts = text_of_hosts(scaling);
  result.agent_ticket = run.agent_ticket;
  return result;
}

expected<void> assign_launch(scaling_config& out, const launch_fields& launch,
                             const std::function<expected<int>()>& gpus) {
  if (launch.workers && launch.workers_per_host)
    return failure(ec::invalid_config, "--workers and --workers_per_host are "
                                       "both given: use one of them");
  if (launch.host_count && launch.workers)
    return failure(ec::invalid_config,
                   "--host_count counts hosts with --workers_per_host, but "
                   "--workers is given: use --workers FEWEST:MOST");
  if (launch.workers) {
    out.num_workers = *launch.workers;
    out.workers_per_host = 0;
    out.min_hosts = out.max_hosts = 0;
  } else if (launch.workers_per_host) {
    out.workers_per_host = *launch.workers_per_host;
  } else if (launch.gpu && !out.use_gpu) {
    // A program that uses GPUs itself says how many.
    TROUPE_TRY(out.workers_per_host, gpus());
    out.num_workers = out.workers_per_host;
  }
  if (launch.host_count && out.workers_per_host == 0)
    return failure(ec::invalid_config,
                   "--host_count counts hosts with --workers_per_host, which "
                   "is not given");
  if (launch.host_count) {
    out.min_hosts = launch.host_count->min;
    out.max_hosts = launch.host_count->max;
  }
  out.hosts.clear();
  if (!launch.hosts.empty())
    out.hosts = {launch.hosts};
  out.use_gpu = launch.gpu;
  return {};
}

void assign_launch(run_config& out, const launch_fields& launch) {
  out.storage_path = launch.storage;
  out.name = launch.name;
  out.if_finished = launch.if_finished;
  out.failure.max_failures = launch.max_failures;
  out.agent_ticket = launch.agent_ticket;
}

expected<void> check_launch(const scaling_config& scaling,
                            const run_config& run) {
  run_request request;
  request.scaling = scaling;
  request.run = run;
  TROUPE_TRY_VOID(prepare(request));
  return {};
}

} // namespace troupe::internal

namespace troupe {

expected<int> count_gpus(const train_options&) {
  auto gpus = static_cast<int>(internal::local_resources().gpus);
  if (gpus == 0)
    return failure(ec::invalid_config, "--gpu: CUDA shows this process no GPU");
  return gpus;
}

} // namespace troupe
