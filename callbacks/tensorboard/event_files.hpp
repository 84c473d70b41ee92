#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/storage/append_file.hpp"

namespace troupe::internal::tensorboard {

/// A writer's position in the event files of a folder.
struct event_place {
  std::uint64_t number = 0; ///< Of the file, from 1; 0: none yet.
  std::int64_t seconds = 0; ///< In its name; readers sort files by it.
  std::string file;         ///< Name.
  std::uint64_t size = 0;   ///< Bytes.
};

/// The event files that a run writes to a folder, one after another. File 0 has
/// the run's params and is replaced when they change.
class event_files {
public:
  /// Opens or creates the folder and cuts this run's files back to *known*;
  /// later files are removed. If nothing is known, the run begins: its own
  /// files, and in a folder that *is_private* to it those of other runs, are
  /// renamed to `former.<rest>`, which readers do not take, or removed if they
  /// have no event. *run_id* and *host* become part of file names. Changes
  /// nothing once a stop is requested through *over*.
  static expected<event_files> open(const fs::path& folder, bool is_private,
                                    const std::string& run_id,
                                    const std::string& host,
                                    const event_place& known,
                                    const std::stop_token& over);

  /// Ends the file and begins the next.
  expected<void> begin(std::chrono::system_clock::time_point time);

  /// Writes complete records to the file; they count once committed.
  expected<void> append(std::string_view records) {
    return file_->append(records);
  }

  /// Makes the appended records durable.
  expected<void> commit() { return file_->commit(); }

  /// Makes *records* the content of file 0.
  expected<void> replace_params(std::chrono::system_clock::time_point time,
                                std::string_view records);

  /// The position up to which everything is durable.
  event_place place() const;

private:
  event_files(fs::path folder, std::string ending, std::string host,
              std::stop_token over)
    : folder_(std::move(folder)), ending_(std::move(ending)),
      host_(std::move(host)), over_(std::move(over)) {}

  /// Removes files of this run after *known*, or sets them aside; finds file 0.
  expected<void> clean(const event_place& known, bool is_private);
  std::string name(std::int64_t seconds, std::uint64_t number) const;

  fs::path folder_;
  std::string ending_; // of file names, up to the number
  std::string host_;
  std::stop_token over_;
  std::string params_file_;
  std::uint64_t number_ = 0;
  std::int64_t seconds_ = 0;
  std::optional<record_file> file_;
};

} // namespace troupe::internal::tensorboard
