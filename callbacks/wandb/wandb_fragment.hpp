#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe {

/// The folder `offline-run-<time>-<id>` in which one life of a run writes. A
/// run that was resumed has several; W&B's uploader orders them by time.
struct wandb_fragment {
  fs::path path;
  std::string id; ///< W&B's id of the run.
  std::chrono::sys_seconds time;

  std::string name() const { return path.filename().string(); }
  fs::path log() const { return path / ("run-" + id + ".wandb"); }
  fs::path files() const { return path / "files"; }

  /// Whether W&B's uploader is done with it. It leaves a marker; its exit
  /// status is 0 even if it failed.
  bool is_synced() const;
};

/// Those of run *id* in folder *root*, oldest first.
expected<std::vector<wandb_fragment>> wandb_fragments(const fs::path& root,
                                                      const std::string& id);

/// Makes one of time *now*, or a second after the newest if that is later, and
/// lets the link `latest-run` name it.
expected<wandb_fragment>
make_wandb_fragment(const fs::path& root, const std::string& id,
                    std::chrono::system_clock::time_point now);

} // namespace troupe
