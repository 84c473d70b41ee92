#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/storage/append_file.hpp"

namespace troupe::internal {

/// The folder `offline-run-<time>-<id>` into which one process writes its part
/// of a run. A resumed run has several; W&B's uploader orders them by time.
struct wandb_fragment {
  fs::path path;
  std::string id; ///< W&B's id of the run.
  std::chrono::sys_seconds time;

  std::string name() const { return path.filename().string(); }
  fs::path log() const { return path / ("run-" + id + ".wandb"); }
  fs::path files() const { return path / "files"; }

  /// Whether W&B's uploader has finished it. The uploader leaves a marker; its
  /// exit status is 0 even if it failed.
  bool is_synced() const;
};

/// The fragments of run *id* in folder *root*, oldest first.
expected<std::vector<wandb_fragment>> wandb_fragments(const fs::path& root,
                                                      const std::string& id);

/// The fragments of *all* that are still to be uploaded.
std::vector<wandb_fragment> unsynced(std::vector<wandb_fragment> all);

/// Creates a fragment for time *now*, or one second after the newest if that is
/// later, and points the link `latest-run` to it.
expected<wandb_fragment>
make_wandb_fragment(const fs::path& root, const std::string& id,
                    std::chrono::system_clock::time_point now);

/// Writes W&B's transaction log `run-<id>.wandb`: a header of seven bytes, then
/// records in chunks within blocks of 32 KiB, as in LevelDB's logs, but with
/// zlib's CRC-32, unmasked.
class wandb_log {
public:
  /// Creates the file *path*, which must not exist, with its header.
  static expected<wandb_log> create(const fs::path& path,
                                    std::stop_token over = {});

  /// Opens *path* to append behind its last whole record. Calls *see* for each
  /// record from byte *from* on, where a record begins. Cuts off a torn record
  /// at the end, because W&B's reader loses everything after one.
  static expected<wandb_log>
  reopen(const fs::path& path, std::uint64_t from,
         const std::function<void(std::string_view)>& see,
         std::stop_token over = {});

  /// Adds one record to what the next `flush` writes.
  void append(std::string_view record);

  /// Writes what was appended and makes it durable. After a failure, discard
  /// the object and reopen the file.
  expected<void> flush();

  /// Bytes that are durable.
  std::uint64_t size() const noexcept { return file_.size(); }

  const fs::path& path() const noexcept { return file_.path(); }

private:
  explicit wandb_log(record_file file) : file_(std::move(file)) {}

  void append_chunk(std::uint8_t type, std::string_view data);

  record_file file_;
  std::string pending_;
};

} // namespace troupe::internal
