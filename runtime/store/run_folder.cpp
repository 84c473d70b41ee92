#include "troupe/runtime/store/run_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "troupe/runtime/config/run_config.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/whole_number.hpp"

namespace troupe::internal {

namespace {

constexpr std::size_t max_claim_bytes = 4096;
/// The mode of new folders above runs: they may be shared, the runs in them are
/// not.
constexpr mode_t storage_mode = 0755;

/// The claims in *attempts*: files called by the number of their attempt. Other
/// files are not ours.
expected<std::vector<std::string>> claims_in(const held_folder& attempts) {
  return attempts.names().map([](std::vector<std::string> names) {
    std::erase_if(names,
                  [](const std::string& name) { return !is_digits(name); });
    return names;
  });
}

/// Storage that maps users gives files another owner than the process that
/// creates them (a network share mounted with a fixed owner, root on NFS).
bool makes_files_of(uid_t owner, const held_folder& folder) {
  // An unnamed one, if possible: on disks of this host, where the folder may
  // belong to another user.
  struct stat made {};
  unique_fd unnamed{::openat(folder.descriptor().get(), ".",
                             O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600)};
  if (unnamed)
    return ::fstat(unnamed.get(), &made) == 0 && made.st_uid == owner;
  auto name = concat(run_layout::owner_prefix, ::getpid());
  auto file = folder.open_file(name, O_WRONLY | O_CREAT | O_EXCL, "create");
  auto same = file && ::fstat(file->get(), &made) == 0 && made.st_uid == owner;
  if (file)
    (void) folder.remove_file(name);
  return same;
}

expected<held_folder> open_run_folder(const fs::path& path) {
  TROUPE_TRY_VOID(make_storage(path.parent_path(), storage_mode));
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return tl::unexpected{storage_error("make folder", path, errno)};
  TROUPE_TRY(auto folder, held_folder::open(path));
  // A driver that saved a state has done this. A start that was killed before
  // may not.
  if (::faccessat(folder.descriptor().get(), run_layout::state, F_OK,
                  AT_SYMLINK_NOFOLLOW)
      != 0) {
    TROUPE_TRY_VOID(sync_folder(path.parent_path()));
    TROUPE_TRY_VOID(sync_name_of(path.parent_path()));
  }
  return folder;
}

tl::unexpected<error> refuse_two_at_once(const fs::path& run) {
  return failure(ec::conflict, concat("another driver is taking the run ",
                                      run.string(), " at this moment"));
}

bool is_same_state(const struct stat& a, const struct stat& b) noexcept {
  return is_same_file(a, b) && a.st_size == b.st_size
         && a.st_mtim.tv_sec == b.st_mtim.tv_sec
         && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

} // namespace

expected<void> sync_name_of(const fs::path& storage) {
  auto above = storage / ".."; // Also of "/" and "runs/".
  struct stat own {};
  struct stat parent {};
  if (::stat(storage.c_str(), &own) == 0 && ::stat(above.c_str(), &parent) == 0
      && own.st_dev != parent.st_dev)
    return {};
  // Opened, not asked whether it may be: a security module or a server that
  // maps users can refuse what its mode allows.
  unique_fd folder{uninterrupted([&above] {
    return ::open(above.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  })};
  if (!folder && (errno == EACCES || errno == EPERM))
    return {};
  if (!folder)
    return tl::unexpected{storage_error("open folder", above, errno)};
  return sync_file(folder, above);
}

expected<void> make_storage(const fs::path& storage, mode_t mode) {
  struct stat found {};
  auto lowest = storage; // That is there.
  while (::stat(lowest.c_str(), &found) != 0) {
    if (errno != ENOENT || !lowest.has_parent_path())
      return make_folders(storage, mode);
    lowest = lowest.parent_path();
  }
  if (lowest != storage && S_ISDIR(found.st_mode))
    TROUPE_TRY_VOID(sync_name_of(lowest));
  return make_folders(storage, mode);
}

// The same second, or one that repeats because the clock was set back.
expected<fs::path> make_new_folder(const fs::path& storage,
                                   const std::string& name) {
  for (int n = 1;; ++n) {
    auto path = storage / (n == 1 ? name : concat(name, '-', n));
    if (::mkdir(path.c_str(), 0700) == 0)
      return sync_folder(storage).map([&] { return path; });
    if (errno != EEXIST)
      return tl::unexpected{storage_error("make folder", path, errno)};
  }
}

expected<void> refuse_other_owner(const held_folder& folder) {
  struct stat found {};
  if (::fstat(folder.descriptor().get(), &found) != 0)
    return tl::unexpected{storage_error("look up", folder.path(), errno)};
  if (found.st_uid == ::geteuid() || makes_files_of(found.st_uid, folder))
    return {};
  return failure(ec::storage,
                 concat("the folder ", folder.path().string(),
                        " belongs to user ", found.st_uid,
                        ", and this process runs as user ", ::geteuid(),
                        ": choose another name or storage_path"));
}

expected<std::optional<run_claim>> latest_claim(const fs::path& run) {
  std::optional<run_claim> none;
  TROUPE_TRY(auto found, look_up_link(run / run_layout::attempts));
  if (!found.exists())
    return none;
  TROUPE_TRY(auto attempts, held_folder::follow(run / run_layout::attempts));
  TROUPE_TRY(auto names, claims_in(attempts));
  std::optional<std::uint64_t> latest;
  for (auto& name : names)
    if (auto number = whole_number<std::uint64_t>(name);
        number && name.size() < 19)
      latest = std::max(latest.value_or(0), *number);
  if (!latest)
    return none;
  auto name = std::to_string(*latest);
  TROUPE_TRY(auto there, attempts.look_up_link(name));
  if (!there.is_file()) // It was taken back meanwhile.
    return none;
  return attempts.read_file(name, max_claim_bytes)
    .map([&](const std::string& line) {
      auto driver = process_from_line(line);
      return driver ? std::optional{run_claim{*latest, std::move(*driver)}}
                    : std::nullopt;
    });
}

expected<std::unique_ptr<run_folder>>
run_folder::open(const fs::path& storage_path, const std::string& name) {
  TROUPE_TRY(auto folder, open_run_folder(storage_path / name));
  TROUPE_TRY_VOID(refuse_foreign(folder));
  return take(std::move(folder));
}

expected<std::unique_ptr<run_folder>>
run_folder::open_new(const fs::path& storage_path) {
  TROUPE_TRY_VOID(make_storage(storage_path, storage_mode));
  TROUPE_TRY_VOID(sync_name_of(storage_path));
  return make_new_folder(storage_path, generated_name("run"))
    .and_then([](const fs::path& path) { return held_folder::open(path); })
    .and_then(take);
}

run_folder::~run_folder() {
  if (claim_ && me_.pid == ::getpid())
    release();
}

expected<std::unique_ptr<run_folder>> run_folder::take(held_folder folder) {
  TROUPE_TRY_VOID(refuse_other_owner(folder));
  std::unique_ptr<run_folder> result{new run_folder{std::move(folder)}};
  TROUPE_TRY_VOID(result->take_lock());
  auto& files = result->folder_;
  for (auto below :
       {run_layout::checkpoints, run_layout::logs, run_layout::sinks})
    TROUPE_TRY_VOID(files.make_folder(below).and_then(refuse_other_owner));
  // The last one of a new run makes all of them durable.
  TROUPE_TRY(result->attempts_, files.folder(run_layout::attempts));
  TROUPE_TRY_VOID(refuse_other_owner(result->attempts_));
  TROUPE_TRY_VOID(result->refuse_held_claims());
  return result;
}

expected<void> run_folder::take_lock() {
  TROUPE_TRY(auto taken,
             take_signed_lock(folder_, run_layout::lock, to_string(me_)));
  if (!taken.lock)
    return failure(
      ec::conflict,
      concat("the run ", folder_.path().string(), " is held by ",
             taken.holder.empty() ? "another process" : taken.holder));
  lock_ = std::move(taken.lock);
  failpoint("lock.written");
  return {};
}

expected<void> run_folder::refuse_held_claims() const {
  TROUPE_TRY(auto names, claims_in(attempts_));
  for (auto& name : names) {
    TROUPE_TRY(auto claim, own_lock::open(attempts_, name, O_RDWR, "open"));
    TROUPE_TRY(auto free, lock_file(claim.file(), attempts_.path() / name));
    if (free)
      continue;
    auto text =
      read_open_file(claim.file(), attempts_.path() / name, max_claim_bytes);
    auto who = text ? process_from_line(*text) : std::nullopt;
    return failure(ec::conflict,
                   concat("the run ", path().string(), " is held by ",
                          who ? to_string(*who) : "another process",
                          ", which is at attempt ", name,
                          "; the run's file 'lock' was removed under it"));
  }
  return {};
}

expected<bool> run_folder::claim(std::uint64_t attempt) {
  auto name = std::to_string(attempt);
  if (name == claim_name_)
    return false;
  // A driver that has a claim removes no other: it could be the successor's.
  if (claim_name_.empty())
    return take_over(attempt);
  return check_all().and_then([&] { return make_claim(name); }).map([] {
    return false;
  });
}

// Its own claim comes first: a driver that cannot make one ousts no other.
expected<bool> run_folder::take_over(std::uint64_t attempt) {
  TROUPE_TRY(auto others, claims_in(attempts_));
  // One that was made for an attempt that then did not begin has its number.
  while (std::ranges::count(others, std::to_string(attempt)) > 0)
    ++attempt;
  TROUPE_TRY_VOID(make_claim(std::to_string(attempt)));
  // Two that take over at once oust each other.
  auto other_is_alive = remove_claims(others).and_then(
    [&](bool alive) { return check().map([&] { return alive; }); });
  if (!other_is_alive)
    take_back_claim();
  return other_is_alive;
}

expected<bool>
run_folder::remove_claims(const std::vector<std::string>& others) const {
  auto other_is_alive = false;
  for (auto& x : others) {
    TROUPE_TRY(auto text, attempts_.read_file(x, max_claim_bytes));
    auto who = process_from_line(text);
    other_is_alive = other_is_alive || (who && who->boot != me_.boot);
  }
  for (auto& x : others) {
    TROUPE_TRY_VOID(attempts_.remove_file(x));
    failpoint("claim.ousted");
  }
  return other_is_alive;
}

expected<void> run_folder::make_claim(const std::string& name) {
  auto path = attempts_.path() / name;
  auto claim =
    own_lock::open(attempts_, name, O_RDWR | O_CREAT | O_EXCL, "create");
  struct stat made {};
  if (!claim && attempts_.look_up(name, made) == 0)
    return refuse_two_at_once(this->path());
  if (!claim)
    return tl::unexpected{claim.error()};
  if (auto ok = sign_claim(*claim, path, made); !ok) {
    (void) attempts_.remove_file(name);
    return ok;
  }
  failpoint("claim.written");
  std::string before;
  {
    std::lock_guard guard{mutex_};
    before = std::exchange(claim_name_, name);
    claim_ = std::move(*claim);
    claim_file_ = made;
  }
  return before.empty() ? expected<void>{} : attempts_.remove_file(before);
}

// Locks the new *claim* and writes its owner into it.
expected<void> run_folder::sign_claim(const own_lock& claim,
                                      const fs::path& path,
                                      struct stat& made) const {
  TROUPE_TRY(auto taken, lock_file(claim.file(), path));
  if (!taken) // By a driver that looks for held claims.
    return refuse_two_at_once(this->path());
  TROUPE_TRY_VOID(overwrite(claim.file(), path, to_line(me_)));
  if (::fstat(claim.file().get(), &made) != 0)
    return tl::unexpected{storage_error("look up", path, errno)};
  return {};
}

void run_folder::take_back_claim() {
  std::lock_guard guard{mutex_};
  struct stat found {};
  if (attempts_.look_up(claim_name_, found) == 0
      && is_same_file(found, claim_file_))
    (void) attempts_.remove_file(claim_name_);
  claim_name_.clear();
  claim_.reset();
}

expected<void>
run_folder::await_ranks(std::chrono::milliseconds limit,
                        const std::function<bool()>& given_up,
                        const store_event_listener& note,
                        const ranks_lock::abandoned_hosts& abandoned) {
  return ranks_.begin(folder_, limit, given_up, note, abandoned);
}

expected<void>
run_folder::end_remaining_processes(const store_event_listener& note) {
  return ranks_.end_remaining(folder_, note);
}

expected<void> run_folder::check() const {
  std::lock_guard guard{mutex_};
  if (ousted_)
    return tl::unexpected{ousted_};
  if (claim_name_.empty())
    return failure(ec::conflict,
                   "the run " + path().string() + " was released");
  struct stat found {};
  auto code = attempts_.look_up(claim_name_, found);
  if (code == 0 && is_same_file(found, claim_file_))
    return {};
  if (code != 0 && code != ENOENT && code != ENOTDIR)
    return tl::unexpected{
      storage_error("look up", attempts_.path() / claim_name_, code)};
  if (auto there = folder_.is_at_its_path(); there && !*there)
    return oust(gone_error("the run's folder", path()));
  return oust(
    {ec::conflict, concat("the run ", path().string(), " was taken by ",
                          holder(), ": the claim attempts/", claim_name_,
                          " is gone, and this driver writes no more")});
}

expected<void> run_folder::check_all() const {
  // To open the folder makes NFS ask for its latest entries: a driver on
  // another host may have removed the claim.
  (void) held_folder::open(attempts_.path());
  TROUPE_TRY_VOID(check());
  TROUPE_TRY(auto there, folder_.is_at_its_path());
  if (there)
    return {};
  std::lock_guard guard{mutex_};
  return oust(gone_error("the run's folder", path()));
}

// The caller holds the mutex.
tl::unexpected<error> run_folder::oust(error reason) const {
  ousted_ = std::move(reason);
  return tl::unexpected{ousted_};
}

// The owner of the latest claim.
std::string run_folder::holder() const {
  auto names = claims_in(attempts_);
  if (names)
    for (auto& name : *names)
      if (auto text = attempts_.read_file(name, max_claim_bytes))
        if (auto who = process_from_line(*text))
          return to_string(*who);
  return "another driver, or someone removes its folder";
}

bool run_folder::is_ousted() const {
  std::lock_guard guard{mutex_};
  return static_cast<bool>(ousted_);
}

void run_folder::release() {
  std::lock_guard guard{mutex_};
  if (claim_ && !ousted_) // A driver on another host need not wait for us.
    (void) !::ftruncate(claim_.file().get(), 0);
  failpoint("claim.released");
  claim_name_.clear();
  claim_.reset();
  ranks_.release();
  lock_.reset();
}

expected<void> run_folder::move_aside(const std::string& name) const {
  TROUPE_TRY(auto above, held_folder::follow(path().parent_path()));
  // Before the look at it: what takes the name from then on is not the entry.
  auto entry = held_entry::open(above, path().filename().string());
  TROUPE_TRY(auto is_here, folder_.is_at_its_path());
  if (!is_here)
    return {};
  return entry.and_then([&](const held_entry& x) { return x.rename(name); });
}

expected<std::optional<saved_run>> run_folder::load_state() {
  struct stat found {};
  auto code = folder_.look_up(run_layout::state, found);
  if (code == ENOENT)
    return std::optional<saved_run>{};
  if (code != 0)
    return tl::unexpected{
      storage_error("look up", path() / run_layout::state, code)};
  TROUPE_TRY(auto file, folder_.open_file(run_layout::state, O_RDONLY, "open"));
  if (::fstat(file.get(), &found) != 0)
    return tl::unexpected{
      storage_error("read", path() / run_layout::state, errno)};
  {
    std::lock_guard guard{mutex_};
    state_file_ = found;
  }
  TROUPE_TRY(auto text,
             read_open_file(file, path() / run_layout::state, max_state_bytes));
  return saved_run_from_json(text, folder_).map([](saved_run x) {
    return std::optional{std::move(x)};
  });
}

expected<void> run_folder::save_state(const saved_run& x) {
  TROUPE_TRY_VOID(check_all());
  TROUPE_TRY_VOID(check_state_file());
  struct stat made {};
  struct stat found {};
  auto text = to_json(x);
  TROUPE_TRY_VOID(
    check_size(path() / run_layout::state, text, max_state_bytes));
  auto saved = folder_.replace_file(run_layout::state, text, &made);
  // Even if that failed: the new file may be in place. Some file systems set
  // its times when it is closed, so they are known only now.
  auto seen = folder_.look_up(run_layout::state, found) == 0;
  std::lock_guard guard{mutex_};
  if (seen)
    state_file_ = found;
  unseen_ = seen ? std::nullopt : std::optional{made};
  return saved;
}

// A missing state was not written by another driver: it is written again.
expected<void> run_folder::check_state_file() const {
  struct stat found {};
  auto code = folder_.look_up(run_layout::state, found);
  if (code == ENOENT)
    return {};
  if (code != 0)
    return tl::unexpected{
      storage_error("look up", path() / run_layout::state, code)};
  std::lock_guard guard{mutex_};
  if (state_file_ && is_same_state(*state_file_, found))
    return {};
  if (unseen_ && is_same_file(*unseen_, found))
    return {};
  return oust({ec::conflict, "someone else has replaced "
                               + (path() / run_layout::state).string()
                               + ": this driver writes no more"});
}

} // namespace troupe::internal
