#pragma once

#include <mutex>
#include <utility>
#include <vector>

#include "troupe/callbacks/tracking/sink.hpp"

namespace troupe::internal::test {

/// A tracker in memory, which fails as the test says.
class recorded_sink : public sink {
public:
  std::string name() const override { return "recorded"; }
  std::string options() const override { return "{}"; }

  expected<void> check(const tracked_run&) const override {
    return on_check ? on_check() : expected<void>{};
  }

  sink_result start(const tracked_run& run, const std::string& state) override {
    std::lock_guard guard{mutex};
    runs.push_back(run);
    states.push_back(state);
    if (!start_result)
      return start_result;
    return answer ? answer({}) : sink_result{};
  }

  std::vector<std::string> take_notes() override {
    std::lock_guard guard{mutex};
    return std::exchange(said, {});
  }

  sink_result log(std::span<const tracker_record> records) override {
    std::lock_guard guard{mutex};
    ++calls;
    auto result = answer ? answer(records) : sink_result{};
    auto taken = result ? records.size() : result.error().accepted;
    for (auto& x : records.first(taken))
      rows.push_back(x);
    return result;
  }

  sink_result finish(run_status_kind status,
                     std::chrono::system_clock::time_point) override {
    std::lock_guard guard{mutex};
    if (!end_result)
      return end_result;
    ends.push_back(status);
    return answer ? answer({}) : sink_result{};
  }

  expected<std::optional<offline_files>>
  offline(const tracked_run&) const override {
    return files;
  }

  std::string state() const override {
    return std::to_string(rows.size()) + " rows";
  }

  bool finish_writes_all() const override { return writes_all_at_end; }

  std::size_t max_batch() const override { return batch; }

  /// Indices of the reports it took, in order.
  std::vector<std::uint64_t> indices() {
    std::lock_guard guard{mutex};
    std::vector<std::uint64_t> result;
    for (auto& x : rows)
      if (auto row = std::get_if<journaled_batch>(&x.content))
        result.push_back(row->index);
    return result;
  }

  std::mutex mutex;
  /// What the next call gets; unset: success.
  std::function<sink_result(std::span<const tracker_record>)> answer;
  sink_result start_result;                 ///< Of `start`, if it fails.
  sink_result end_result;                   ///< Of `finish`, if it fails.
  std::function<expected<void>()> on_check; ///< Unset: success.
  expected<std::optional<offline_files>> files;
  std::size_t batch = 1000;
  bool writes_all_at_end = false;
  int calls = 0;
  std::vector<tracked_run> runs;
  std::vector<std::string> states;
  std::vector<tracker_record> rows;
  std::vector<run_status_kind> ends;
  std::vector<std::string> said; ///< What `take_notes` returns once.
};

} // namespace troupe::internal::test
