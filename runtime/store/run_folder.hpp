#pragma once

#include <sys/stat.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/process/processes.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/file_lock.hpp"
#include "troupe/runtime/storage/held_folder.hpp"
#include "troupe/runtime/store/ranks_lock.hpp"
#include "troupe/runtime/store/saved_run.hpp"

namespace troupe::internal {

/// Whether *path* is the folder of a run, which has at least one of its files:
/// `ec::invalid_argument` if not, `ec::storage` if there is none.
expected<void> expect_run_folder(const fs::path& path);

/// Before anything in it is removed: whether one of these files in the folder
/// *path* has a checksum of Troupe's. Other programs have a `state.json`, too.
expected<void> expect_own_run(const fs::path& path);

/// Before a run begins in it: `ec::conflict` if *folder* has files, and none is
/// a run's.
expected<void> refuse_foreign(const held_folder& folder);

/// Makes the name of the folder *storage* durable: a start may have made it and
/// been killed before it did this. None can have made a mount point, and what
/// lies below a folder that this user may not read stays as it is.
expected<void> sync_name_of(const fs::path& storage);

/// Makes the folder *storage* of runs or sweeps and what is missing above it,
/// with *mode*; each in one whose own name is durable. So a start that is
/// killed leaves at most the lowest one for `sync_name_of`.
expected<void> make_storage(const fs::path& storage, mode_t mode);

/// Makes a folder *name* in *storage*, with a number after it if that is taken.
/// Its name is durable.
expected<fs::path> make_new_folder(const fs::path& storage,
                                   const std::string& name);

/// Before anything of ours gets into it: `ec::storage` if *folder* belongs to
/// another user, who could change what is in it.
expected<void> refuse_other_owner(const held_folder& folder);

/// How the name of a finished run's folder begins while it is removed, so that
/// another run takes its name: `.replaced-<name>-<8 digits>`.
inline constexpr std::string_view replaced_prefix = ".replaced-";

/// Whether *folder* is such a name. What a crash has left of it is removed when
/// a run of that name is replaced again.
bool is_replaced_run(std::string_view folder) noexcept;

/// A driver's right to a run, from one of its attempts on.
struct run_claim {
  std::uint64_t attempt = 0;
  process_identity driver;
};

/// The claim in the run's folder *run* with the highest number; nothing if
/// there is none, or if that was given up in order: then it is empty.
expected<std::optional<run_claim>> latest_claim(const fs::path& run);

/// The folder `<storage>/<name>` of a run, held by one driver at a time.
///
/// The file `lock` keeps apart drivers that start at once. The right to write
/// to the run is a *claim*: the file `attempts/<n>` of the driver's attempt,
/// which names its process and is locked while that runs. A driver that takes
/// the run over removes it, and the ousted driver finds it missing: see
/// docs/decisions/ownership.md.
///
/// All calls but `open` and `claim` may come from any thread.
class run_folder {
public:
  /// Makes what is missing and takes the lock. `ec::storage` if the storage
  /// cannot be written to, with the reason, or if the folder belongs to another
  /// user; `ec::conflict` with the holder's pid and host if another driver has
  /// the run, even if someone removed its lock, or if the folder has files and
  /// is not a run's.
  static expected<std::unique_ptr<run_folder>>
  open(const fs::path& storage_path, const std::string& name);

  /// The same for a run without a name: makes a folder that was not there.
  static expected<std::unique_ptr<run_folder>>
  open_new(const fs::path& storage_path);

  /// A driver that has claimed the run releases it, one whose start fails, too:
  /// its process may live on. A child that the program forks does not.
  ~run_folder();

  /// Claims the run for attempt *attempt*; the claim of an earlier one is
  /// given up, and any other owner is ousted. An error ousts no one: the own
  /// claim is made first, and removed again. Returns whether a driver on
  /// another host may still run without knowing it: it notices within
  /// `takeover_wait`.
  expected<bool> claim(std::uint64_t attempt);

  /// Begins an attempt as far as ranks go, once no process of an earlier one is
  /// left: see `ranks_lock::begin`.
  expected<void> await_ranks(
    std::chrono::milliseconds limit,
    const std::function<bool()>& given_up = [] { return false; },
    const store_event_listener& note = ignore_store_event,
    const ranks_lock::abandoned_hosts& abandoned = no_abandoned_hosts);

  /// The run ends: see `ranks_lock::end_remaining`.
  expected<void> end_remaining_processes(const store_event_listener& note);

  /// What a rank process needs to join that attempt.
  expected<ranks_ticket> ticket() const { return ranks_.ticket(); }
  std::uint64_t ranks_token() const { return ranks_.token(); }

  /// Whether the run is still this driver's; an error says who has it. A look
  /// at the claim alone: a microsecond. Once it failed it always fails.
  expected<void> check() const;

  /// The same, and whether the folder still lies at its path.
  expected<void> check_all() const;

  /// Whether `check` found the run taken. A failed look-up does not count: the
  /// disk may answer again.
  bool is_ousted() const;

  /// Releases the run: another driver may take it. `check` fails from now on.
  void release();

  /// Gives the folder the name *name* beside its own; does nothing if it no
  /// longer has that. A run that has taken its name meanwhile keeps it.
  expected<void> move_aside(const std::string& name) const;

  /// Reads `state.json`; nothing if there is none yet.
  expected<std::optional<saved_run>> load_state();

  /// Replaces `state.json`, unless someone else has done so since it was read
  /// or replaced here.
  expected<void> save_state(const saved_run& x);

  /// How long a driver on another host may take to notice that it was ousted:
  /// it checks once a second, and network files may lag.
  static constexpr auto takeover_wait = std::chrono::seconds{3};

  const held_folder& files() const noexcept { return folder_; }
  const fs::path& path() const noexcept { return folder_.path(); }
  fs::path checkpoints() const { return path() / run_layout::checkpoints; }
  fs::path journal_file() const { return path() / run_layout::journal; }

private:
  static expected<std::unique_ptr<run_folder>> take(held_folder folder);
  explicit run_folder(held_folder folder) : folder_(std::move(folder)) {}

  expected<void> take_lock();
  expected<bool> take_over(std::uint64_t attempt);
  /// Removes the claims *others*. Returns whether one may belong to a running
  /// driver elsewhere.
  expected<bool> remove_claims(const std::vector<std::string>& others) const;
  expected<void> make_claim(const std::string& name);
  expected<void> sign_claim(const own_lock& claim, const fs::path& path,
                            struct stat& made) const;
  void take_back_claim();
  expected<void> refuse_held_claims() const;
  expected<void> check_state_file() const;
  tl::unexpected<error> oust(error reason) const;
  std::string holder() const;

  held_folder folder_;
  held_folder attempts_;
  own_lock lock_;
  ranks_lock ranks_;
  const process_identity me_ = own_identity();

  mutable std::mutex mutex_; // guards what follows
  std::string claim_name_;   // empty: none yet, or released
  own_lock claim_;
  struct stat claim_file_ {};
  std::optional<struct stat> state_file_; // as it was read or written last
  std::optional<struct stat> unseen_; // its inode if it could not be checked
  mutable error ousted_;              // why nothing may be written any more
};

} // namespace troupe::internal
