#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/troupe/runs.hpp"
#include "tools/troupe/storage.hpp"
#include "tools/troupe/sweeps.hpp"
#include "troupe/callbacks/report_page/digest_reader.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::tool {

/// The runs and sweeps of a storage folder, which the kernel says changed.
/// Reads only what is asked for, and of a run's journal only what is new.
///
/// A trial of a sweep is the run `SWEEP/TRIAL`. It is not in the list.
class live_storage {
public:
  /// Errors are those of `look_into`.
  static expected<live_storage> open(const fs::path& path);

  /// Readable when the folder itself may have been removed or moved: then
  /// `look_at_itself` is called.
  const internal::unique_fd& own_changes() const noexcept {
    return own_changes_;
  }

  /// An error: the folder itself is gone.
  expected<void> look_at_itself();

  /// Adds what to wait for before `look` is called.
  void add_waits(std::vector<pollfd>& to) const;

  /// Takes note of what has changed. An error: the folder itself is gone.
  expected<void> look();

  /// Whether the kernel announces all that changes: all folders are watched, on
  /// file systems that no other host writes to. Then `look` is enough.
  bool is_announced() const noexcept { return is_announced_; }

  /// The same of what another host has changed, which the kernel of this one
  /// does not announce: runs and sweeps that came or went, those whose driver
  /// is elsewhere, and those that had ended and are resumed. If a folder is not
  /// watched, of this host, too.
  expected<void> look_elsewhere();

  /// From now on the trial *name*, as in `SWEEP/TRIAL`, is one of the runs, if
  /// it is there.
  void follow(const std::string& name);

  /// Grows when something has changed in any run, or in the run or sweep
  /// *name*; 0: there is none. No two states of a name have the same one.
  std::uint64_t version() const noexcept { return version_; }
  std::uint64_t version(const std::string& name) const;

  /// All runs and sweeps and what is strange in the folder, as one JSON object.
  std::string list_json();

  /// All about the run *name*, which exists: {"state", "can_stop", "run"}, the
  /// last as `page_data` has it.
  expected<std::string> run_json(const std::string& name);

  bool is_sweep(const std::string& name) const {
    return sweeps_.contains(name);
  }

  /// All about the sweep *name*, which exists: {"name", "can_stop", "sweep"},
  /// the last as `sweep_data` has it.
  std::string sweep_json(const std::string& name);

  /// The runs *names* side by side: {"comparison"}, as `comparison_data` has
  /// it.
  expected<std::string> comparison_json(const std::vector<std::string>& names);

  /// The folder of the run or sweep *name*; nothing if it is neither.
  std::optional<fs::path> path_of(const std::string& name) const;

  const fs::path& path() const noexcept { return path_; }

private:
  struct run {
    fs::path path;
    std::uint64_t version = 0;
    int watch = -1;                 ///< Of its folder; another one: a new run.
    std::uint64_t read_version = 0; ///< At which `facts` was read.
    std::vector<std::int64_t> read_stamp; ///< Of its files, just before that.
    std::optional<found_run> facts;
    std::shared_ptr<internal::digest_reader> journal; ///< nullptr: not open.
    internal::unique_fd driver; ///< Readable once its driver has ended.
  };

  struct sweep {
    fs::path path;
    std::uint64_t version = 0;
    std::uint64_t read_version = 0;       ///< At which `facts` was read.
    std::vector<std::int64_t> read_stamp; ///< Of its files, just before that.
    std::optional<found_sweep> facts;
    internal::unique_fd driver; ///< Readable once its driver has ended.
  };

  using watch_map = std::multimap<int, std::string>;

  explicit live_storage(fs::path path) : path_(std::move(path)) {}

  expected<void> rescan();
  expected<void> expect_itself() const;
  expected<storage_content> read_content() const;
  void take(storage_content content);
  void look_at_names(const storage_content& content);
  void watch_all();
  int watch(watch_map& to, const fs::path& folder, const std::string& name,
            std::uint32_t what);
  void watch_run(watch_map& to, const std::string& name, run& x);
  bool note(const std::string& name, std::uint32_t event);
  void look_at_drivers();
  template <class T>
  void changed(T& x) {
    x.version = ++version_;
  }
  const found_run& facts_of(run& x);
  const found_sweep& facts_of(sweep& x);

  fs::path path_;
  internal::unique_fd own_changes_; ///< Of the folder's name alone.
  internal::unique_fd changes_;
  int own_watch_ = -1;
  watch_map watches_; ///< What a watch says that it has changed.
  std::map<std::string, run> runs_;
  std::map<std::string, sweep> sweeps_;
  std::vector<strange_folder> strange_;
  std::vector<fs::path> known_;  ///< All that was in the folder.
  std::size_t unwatched_ = 0;    ///< How many folders are not watched.
  std::string unwatched_reason_; ///< Why the first of them is not.
  bool is_announced_ = false;
  std::uint64_t version_ = 1;
};

} // namespace troupe::tool
