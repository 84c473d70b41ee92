#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/callbacks/tracking/tracked_run.hpp"

namespace troupe::internal::test {

/// Makes the records of a run as its journal would yield them: one per second,
/// from 2026-01-01T00:00:00Z on.
class tracker_records {
public:
  tracker_records& attempt(std::uint64_t number, std::uint64_t first_report) {
    attempt_ = number;
    return add(attempt_record{first_report});
  }

  tracker_records& report(std::uint64_t index, std::vector<metrics> values,
                          std::string checkpoint = {}) {
    journaled_batch row;
    row.index = index;
    row.attempt = attempt_;
    row.time = time_;
    row.values = std::move(values);
    row.checkpoint = std::move(checkpoint);
    return add(row);
  }

  tracker_records& add(const tracker_record::content_type& content) {
    records_.push_back({attempt_, time_, end_, content});
    time_ += std::chrono::seconds{1};
    end_ += 100;
    return *this;
  }

  /// The time of the next record.
  std::chrono::system_clock::time_point time() const { return time_; }

  const std::vector<tracker_record>& all() const noexcept { return records_; }

private:
  std::uint64_t attempt_ = 0;
  std::uint64_t end_ = 100;
  std::chrono::system_clock::time_point time_{std::chrono::seconds{1767225600}};
  std::vector<tracker_record> records_;
};

inline tracked_run tracked_run_in(const fs::path& path) {
  tracked_run run;
  run.name = "fashion";
  run.path = path;
  run.id = "0123456789abcdef0123456789abcdef";
  run.config = {
    {"lr", 0.1}, {"epochs", 3}, {"optimizer/name", "adam"}, {"amp", true}};
  run.tags = {{"troupe.run_uid", run.id}, {"host", "node-1"}, {"user", "ada"}};
  run.start_time = tracker_records{}.time();
  return run;
}

/// A run with everything that is hard for trackers: two ranks, three attempts,
/// the second of which goes back from report 60 to 40, NaN and infinities,
/// integers above 2^53, names and texts in Unicode and with quotes, groups, a
/// name of 300 characters, a name that first appears in report 50, and 1100
/// names in report 70.
inline tracker_records hard_run() {
  tracker_records result;
  auto values = [](std::uint64_t index, int rank) {
    auto nan = std::numeric_limits<double>::quiet_NaN();
    auto inf = std::numeric_limits<double>::infinity();
    metrics x{{"epoch", index},
              {"loss", 1.0 / static_cast<double>(index + 1) + rank},
              {"val/acc", 0.1 * static_cast<double>(index)},
              {"big", (std::int64_t{1} << 53) + 1},
              {"done", index % 2 == 0},
              {"phase", index < 30 ? "warm, \"up\"\nslow" : "größe"},
              {"größe,\"x\"", 0.5},
              {std::string(300, 'k'), index}};
    x["odd"] = index % 3 == 0 ? nan : index % 3 == 1 ? inf : -inf;
    if (index >= 50)
      x["late"] = index;
    if (index == 70)
      for (int i = 0; i < 1100; ++i)
        x["many/" + std::to_string(i)] = i;
    return x;
  };
  auto reports = [&](std::uint64_t from, std::uint64_t to) {
    for (auto i = from; i < to; ++i)
      result.report(i, {values(i, 0), values(i, 1)},
                    i % 20 == 19 ? "checkpoint_" + std::to_string(i) : "");
  };
  result.attempt(0, 0);
  reports(0, 60);
  result.attempt(1, 40);
  reports(40, 80);
  result.attempt(2, 80);
  reports(80, 90);
  return result;
}

} // namespace troupe::internal::test
