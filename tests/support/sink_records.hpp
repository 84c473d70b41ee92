#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/environment_guard.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/callbacks/tracking/tracked_run.hpp"

namespace troupe::internal::test {

/// The time of record *n* of the runs below.
inline std::chrono::system_clock::time_point record_time(std::uint64_t n) {
  return std::chrono::system_clock::time_point{
    std::chrono::milliseconds{1'700'000'000'000 + 500 * n}};
}

/// Numbers records as a journal does.
class sink_records {
public:
  /// The next record, of *attempt*.
  tracker_record operator()(tracker_record::content_type content,
                            std::uint64_t attempt = 0) {
    ++last_;
    return {attempt, record_time(last_), 100 * last_, std::move(content)};
  }

  /// Report *index*, of as many ranks as *values* has elements.
  tracker_record report(std::uint64_t index, std::vector<metrics> values,
                        std::uint64_t attempt = 0) {
    journaled_batch row;
    row.index = index;
    row.attempt = attempt;
    row.time = record_time(last_ + 1);
    row.values = std::move(values);
    return (*this)(std::move(row), attempt);
  }

private:
  std::uint64_t last_ = 0;
};

/// A run in *path* that began at the time of record 0.
inline tracked_run run_in(const fs::path& path) {
  tracked_run result;
  result.name = "digits";
  result.path = path;
  result.id = "0123456789abcdef0123456789abcdef";
  result.config = {{"lr", 0.1}, {"optimizer/name", "sgd"}};
  result.tags = {{"host", "here"}, {"user", "me"}};
  result.start_time = record_time(0);
  return result;
}

/// The files below *folder* that contain *text*.
inline std::vector<fs::path> files_with(const fs::path& folder,
                                        const std::string& text) {
  std::vector<fs::path> result;
  for (fs::recursive_directory_iterator i{folder}, end; i != end; ++i)
    if (fs::is_regular_file(i->path())
        && bytes_of(i->path()).find(text) != std::string::npos)
      result.push_back(i->path());
  return result;
}

} // namespace troupe::internal::test
