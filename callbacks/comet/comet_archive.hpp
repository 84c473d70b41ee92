#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/callbacks/comet/comet_message.hpp"
#include "troupe/callbacks/comet/comet_settings.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe::internal {

struct zip_entry {
  std::string name;
  std::string bytes;
};

/// Makes a zip archive of *entries*, deflated, in memory. `ec::unsupported` if
/// there is not enough of it.
expected<std::string> make_zip(const std::vector<zip_entry>& entries);

/// The bytes of the entry *name* of an *archive* made by `make_zip`.
/// `ec::corrupt` if it is missing or its checksum is wrong.
expected<std::string> zip_member(std::string_view archive,
                                 const std::string& name);

/// The state of the archives, which a restarted one continues from.
struct comet_archive_place {
  std::uint64_t number = 0; ///< Of the archive.
  std::uint64_t size = 0;   ///< Confirmed bytes of the messages.
  std::uint64_t count = 0;  ///< Messages.
  bool packed = false;      ///< The archive holds them all.
};

/// Writes archives for `comet upload`: `<key>.zip` when the experiment ends,
/// and `<key>-<n>.zip` with the messages since then each time it ends again.
/// Until then the messages are in a file beside the archives.
class comet_archive final : public comet_backend {
public:
  comet_archive(comet_settings settings, std::vector<std::string> tags,
                const tracked_run& run);

  sink_result start(const std::string& state) override;
  sink_result send(std::span<const comet_message> messages) override;
  std::size_t room(std::chrono::duration<double> span) override;
  sink_result finish(std::chrono::system_clock::time_point time) override;
  std::string state() const override;

  /// Path of the archive that is being written, or else of the latest.
  fs::path path() const;

private:
  fs::path messages_path() const;
  expected<void> restore_messages();
  std::string experiment_json(std::int64_t end_ms) const;
  std::string line_of(const comet_message& x, std::uint64_t id) const;

  comet_settings settings_;
  std::vector<std::string> tags_;
  std::int64_t start_ms_ = 0;
  std::stop_token over_;
  comet_archive_place place_;
};

/// The archives of the experiment of *settings*, sorted by name.
expected<std::vector<fs::path>> comet_archives(const comet_settings& settings);

} // namespace troupe::internal
