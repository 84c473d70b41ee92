#pragma once

#include <algorithm>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/trainers/config/fields.hpp"
#include "troupe/trainers/data_parallel_trainer.hpp"

namespace troupe {

/// How `parse_config` reads a config.
struct parse_options {
  /// What the program does, one line of `--help`.
  std::string about = {};
  /// Prefix of the environment variables that hold fields. A variable with this
  /// prefix that is not a field is an error. Empty: the environment is not
  /// read.
  std::string environment = "TROUPE_CONFIG_";
  /// The run is that of a `sweep`: `--help` leaves out `--if_finished` and what
  /// is for several hosts, which a sweep refuses.
  bool for_sweep = false;
};

namespace internal {

/// The option that names a JSON file with values.
inline constexpr std::string_view file_option = "config";
inline constexpr std::string_view help_option = "help";

/// Whether no name of *fields*, as `TROUPE_FIELDS` lists them, is in *taken*.
/// Case does not count, as in names of variables.
constexpr bool are_free_names(std::string_view fields, std::string_view taken) {
  auto same = [](char a, char b) {
    return in_lower_case(a) == in_lower_case(b);
  };
  while (!fields.empty()) {
    auto name = next_field_name(fields);
    for (auto rest = taken; !rest.empty();)
      if (std::ranges::equal(name, next_field_name(rest), same))
        return false;
  }
  return true;
}

/// Refuses a *Config* whose fields have names that `parse_config` needs.
template <class Config>
constexpr void require_free_names() {
  static_assert(are_free_names(Config::troupe_field_names(), file_option)
                  && are_free_names(Config::troupe_field_names(), help_option),
                "parse_config has the options --config and --help itself: a "
                "field of this config needs another name");
}

/// The options of a run that most programs leave to those who start them.
struct launch_fields {
  std::optional<worker_count> workers;
  bool gpu = false;
  fs::path storage;
  std::optional<std::string> name;
  troupe::if_finished if_finished = troupe::if_finished::refuse;
  int max_failures = 0;
  std::string hosts;
  std::optional<int> workers_per_host;
  std::optional<worker_count> host_count;
  fs::path agent_ticket;
  TROUPE_FIELDS(workers, gpu, storage, name, if_finished, max_failures, hosts,
                workers_per_host, host_count, agent_ticket)
};

/// The same for a *Config* that is read together with the options of a run.
template <class Config>
constexpr void require_free_names_in_run() {
  require_free_names<Config>();
  static_assert(are_free_names(Config::troupe_field_names(),
                               launch_fields::troupe_field_names()),
                "parse_config gives a run the options workers, gpu, storage, "
                "name, if_finished, max_failures, hosts, workers_per_host, "
                "host_count and agent_ticket: a field of this config needs "
                "another name");
}

/// What a command line asks for.
struct parsed_fields {
  config_value values; ///< Of all fields.
  std::string help;    ///< If that was asked for.
};

/// The *values* of a group's fields, of shape *shape*, replaced by those of a
/// JSON file, *environment* (as `environ`), and the command line. Errors name
/// the field and where its value was read. Throws `std::logic_error` for a
/// shape whose names cannot be told apart.
expected<parsed_fields> read_config(const config_shape& shape,
                                    config_value values, int argc,
                                    const char* const* argv,
                                    const char* const* environment,
                                    const parse_options& options);

/// As `read_config` for this process, which ends with 0 after its help and with
/// 2 after an error.
config_value read_config_or_exit(const config_shape& shape, config_value values,
                                 int argc, const char* const* argv,
                                 const parse_options& options);

/// Ends the process with 2.
[[noreturn]] void exit_for_usage(int argc, const char* const* argv,
                                 std::string_view what);

/// Adds the fields of *launch* to those of a config; their names must be free.
/// Without `--workers` there are *workers*. *for_sweep* is that of
/// `parse_options`.
void add_launch_fields(config_shape& shape, config_value& values,
                       const launch_fields& launch, const worker_count& workers,
                       bool for_sweep);

/// The options of a run as the program has them. Numbers of ranks and hosts are
/// unset.
launch_fields launch_of(const scaling_config& scaling, const run_config& run);

/// Puts what *launch* says about ranks and hosts into *out*; *gpus* counts
/// those of a host. Fails if options contradict each other.
expected<void> assign_launch(scaling_config& out, const launch_fields& launch,
                             const std::function<expected<int>()>& gpus);

/// Puts the rest of *launch* into *out*.
void assign_launch(run_config& out, const launch_fields& launch);

/// Refuses what `fit()` refuses about these options, in the same words.
expected<void> check_launch(const scaling_config& scaling,
                            const run_config& run);

template <class Config>
void validate_config(const Config& x, int argc, const char* const* argv) {
  if constexpr (requires { x.validate(); }) {
    try {
      x.validate();
    } catch (const std::exception& why) {
      exit_for_usage(argc, argv, why.what());
    }
  }
}

} // namespace internal

/// A *Config* (a struct with `TROUPE_FIELDS`) with values from, in this order,
/// the last one wins: its own defaults, the JSON file of `--config FILE`, the
/// environment (`TROUPE_CONFIG_LR`, a nested field
/// `TROUPE_CONFIG_OPTIMIZER__LR`) and the command line (`--lr 0.1`, `--lr=0.1`,
/// `--optimizer.lr 0.1`).
///
/// A list is written as `1,2,3` or `[1,2,3]`, a map as `{"a":1}`, a flag as
/// `--shuffle` or `--shuffle=false`; an empty value unsets an optional. `-` in
/// the name of an option is read as `_`. `~/` at the beginning of an `fs::path`
/// is the home folder.
///
/// `--help` prints all fields with their types and defaults and ends the
/// program with 0. An unknown field, a value of another type or out of range,
/// an option given twice: the program ends with 2 after a sentence that names
/// the field. It also does so if `Config::validate() const` exists and throws a
/// `std::exception`.
///
/// A field called `config` or `help` does not compile.
template <internal::has_named_fields Config>
Config parse_config(int argc, char** argv, const parse_options& options = {}) {
  internal::require_free_names<Config>();
  Config result{};
  internal::assign_config(
    result, internal::read_config_or_exit(internal::shape_of<Config>(),
                                          internal::to_config_value(result),
                                          argc, argv, options));
  internal::validate_config(result, argc, argv);
  return result;
}

/// The same, and ten fields for *run*, the options of the trainer, whose values
/// are the defaults: `--workers` (3, or 2:8 for an elastic run), `--gpu`
/// (without `--workers`: one worker for each GPU of a host, unless *run* has
/// `use_gpu` already), `--storage`, `--name`, `--if_finished`, `--max_failures`
/// (-1: without limit), `--hosts`, `--workers_per_host`, `--host_count` (2:4:
/// the fewest and the most, with `--workers_per_host`) and `--agent_ticket`.
/// The config has no fields with these names.
///
/// The program also ends with 2 if `fit()` would refuse *run* as it then is,
/// such as 100000 workers of one host: set before what else a run needs.
template <internal::has_named_fields Config, class Options>
  requires requires(Options& x) {
    x.scaling.num_workers;
    x.run.storage_path;
  }
Config parse_config(int argc, char** argv, Options& run,
                    const parse_options& options = {}) {
  using namespace internal;
  require_free_names_in_run<Config>();
  Config result{};
  auto launch = launch_of(run.scaling, run.run);
  auto shape = shape_of<Config>();
  auto values = to_config_value(result);
  add_launch_fields(shape, values, launch, run.scaling.num_workers,
                    options.for_sweep);
  values = read_config_or_exit(shape, std::move(values), argc, argv, options);
  assign_config(result, values);
  assign_config(launch, values);
  validate_config(result, argc, argv);
  assign_launch(run.run, launch);
  auto fit = assign_launch(run.scaling, launch, [&run] {
               return count_gpus(run);
             }).and_then([&run] { return check_launch(run.scaling, run.run); });
  if (!fit)
    exit_for_usage(argc, argv, fit.error().message);
  return result;
}

} // namespace troupe
