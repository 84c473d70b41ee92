#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/runtime/metrics/metrics.hpp"

namespace troupe::internal {

/// One value of W&B's history, summary, config or system stats: a name, and
/// JSON as W&B writes it, with bare `NaN` and `Infinity`.
struct wandb_item {
  std::string key;
  std::string json;
  std::string part = {}; ///< The name within a nested group; empty: no group.
};

/// Numbers keep their type and every digit; bytes of a text that are not UTF-8
/// become U+FFFD.
std::string wandb_json(const metric_value& x);

/// The same for a config, whose readers accept neither NaN nor infinities:
/// `null` replaces them, as in files that W&B writes itself.
std::string wandb_config_json(const metric_value& x);

/// What one log file says about its run before the first row.
struct wandb_run {
  using clock = std::chrono::system_clock;

  std::string id;
  std::string project;
  std::string entity;
  std::string name;
  std::string group;
  std::string job_type;
  std::string notes;
  std::vector<std::string> tags;
  std::string host;
  clock::time_point start_time; ///< Of this file.
  /// Append behind the rows that the service has. False for the first file of
  /// a run, which is always uploaded from row 0.
  bool resume = false;
  std::vector<wandb_item> config;
};

/// The machine and the program that a run belongs to.
struct wandb_environment {
  std::string os;
  std::string program;
  std::string host;
  std::string user;
  unsigned cpus = 0;
  std::uint64_t memory = 0; ///< Bytes.
};

/// Encodes the records of one W&B log file, numbered from 1.
class wandb_records {
public:
  using clock = std::chrono::system_clock;

  std::string header();
  std::string run(const wandb_run& x);
  std::string environment(const wandb_environment& x, clock::time_point start);
  std::string config(std::span<const wandb_item> items);
  /// *items* must include `_step`, `_runtime` and `_timestamp`: without `_step`
  /// the uploader numbers the rows itself.
  std::string history(std::int64_t step, std::span<const wandb_item> items);
  std::string summary(std::span<const wandb_item> items);
  std::string stats(clock::time_point time, std::span<const wandb_item> items);
  /// *line* includes its line end.
  std::string output(clock::time_point time, std::string_view line);
  /// A file below `files/`, to be uploaded now.
  std::string file(std::string_view path, bool is_media);
  /// The last record of a file; a run without it counts as failed.
  std::string exit(int code, std::chrono::seconds runtime);

private:
  template <class Body>
  std::string record(std::uint32_t field, Body body);

  std::int64_t last_ = 0;
};

/// What a restarted sink reads from a record written before the restart.
struct wandb_seen {
  bool exit = false;
  std::optional<std::int64_t> step;    ///< `_step` of a row.
  std::optional<std::int64_t> report;  ///< `troupe/report` of a row.
  std::optional<std::int64_t> logged;  ///< `troupe/step` of a row.
  std::optional<std::int64_t> attempt; ///< `troupe.attempt` of a config.
};

/// Names of the row values that identify a row. `_step` alone cannot: W&B
/// requires it to increase from row to row.
inline constexpr std::string_view wandb_report_key = "troupe/report";
inline constexpr std::string_view wandb_logged_key = "troupe/step";

/// Name in the config of the attempt whose rows follow.
inline constexpr std::string_view wandb_attempt_key = "troupe.attempt";

/// Reads *record*. Malformed bytes yield an empty result.
wandb_seen see_wandb_record(std::string_view record);

} // namespace troupe::internal
