#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "troupe/callbacks/wandb/wandb_item.hpp"
#include "troupe/callbacks/wandb/wandb_run.hpp"

namespace troupe {

/// Encodes the records of one W&B log file, numbered from 1 on.
class wandb_records {
public:
  using clock = std::chrono::system_clock;

  std::string header();
  std::string run(const wandb_run& x);
  std::string environment(const wandb_environment& x, clock::time_point start);
  std::string config(std::span<const wandb_item> items);
  /// *items* hold `_step`, `_runtime` and `_timestamp`, too: without the first
  /// the uploader numbers rows by itself.
  std::string history(std::int64_t step, std::span<const wandb_item> items);
  std::string summary(std::span<const wandb_item> items);
  std::string stats(clock::time_point time, std::span<const wandb_item> items);
  /// *line* ends with its line end.
  std::string output(clock::time_point time, std::string_view line);
  /// A file below `files/`, to be uploaded now.
  std::string file(std::string_view path, bool is_media);
  /// The last one of a file; without it the run counts as failed.
  std::string exit(int code, std::chrono::seconds runtime);

private:
  template <class Body>
  std::string record(std::uint32_t field, Body body);

  std::int64_t last_ = 0;
};

/// What is to be known of a record that was written in another life.
struct wandb_seen {
  bool exit = false;
  std::optional<std::int64_t> step;   ///< `_step` of a row.
  std::optional<std::int64_t> report; ///< `troupe/report` of a row.
  std::optional<std::int64_t> logged; ///< `troupe/step` of a row.
};

/// Names of the row values that say what a row stands for. `_step` alone can
/// not: W&B wants it to rise from row to row.
inline constexpr std::string_view wandb_report_key = "troupe/report";
inline constexpr std::string_view wandb_logged_key = "troupe/step";

/// Reads *record*; bytes that make no sense tell nothing.
wandb_seen see_wandb_record(std::string_view record);

} // namespace troupe
