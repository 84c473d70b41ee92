#include "tools/troupe/live_storage.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "troupe/callbacks/report_page/comparison.hpp"
#include "troupe/callbacks/report_page/page_data.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/json.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::tool {

using namespace internal;

namespace {

constexpr std::uint32_t of_storage = IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM
                                     | IN_DELETE | IN_DELETE_SELF | IN_MOVE_SELF
                                     | IN_ONLYDIR;

constexpr std::uint32_t of_name = IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;

// The journal grows, and other files are replaced.
constexpr std::uint32_t of_run =
  IN_MODIFY | IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_ONLYDIR;

/// Of another folder only what may make it a run.
constexpr std::uint32_t of_folder = IN_CREATE | IN_MOVED_TO | IN_ONLYDIR;

/// Whether only this host writes to the file system of *folder*, whose kernel
/// then announces every change. Of an unknown one that is not believed.
bool is_local(const fs::path& folder) {
  // Not in each version of the list.
  constexpr unsigned long xfs = 0x58465342, zfs = 0x2fc12fc1,
                          bcachefs = 0xca451a4e;
  struct statfs info {};
  if (::statfs(folder.c_str(), &info) != 0)
    return false;
  switch (static_cast<unsigned long>(info.f_type)) {
    case BTRFS_SUPER_MAGIC:
    case EXT4_SUPER_MAGIC: // ext2 and ext3, too
    case F2FS_SUPER_MAGIC:
    case TMPFS_MAGIC:
    case bcachefs:
    case xfs:
    case zfs:
      return true;
    default:
      return false;
  }
}

/// Shows whether the run or the sweep in *folder* has gone on. Each file is
/// opened, without which NFS answers from a cache.
std::vector<std::int64_t> stamp_of(const fs::path& folder) {
  std::vector<std::int64_t> result;
  for (auto name :
       {run_layout::journal, run_layout::state, run_layout::sweep_journal}) {
    auto file = open_file(folder / name, O_RDONLY, "open");
    struct stat info {};
    if (file && ::fstat(file->get(), &info) == 0)
      result.insert(result.end(),
                    {static_cast<std::int64_t>(info.st_ino), info.st_size,
                     info.st_mtim.tv_sec, info.st_mtim.tv_nsec});
    else
      result.push_back(-1);
  }
  return result;
}

/// The facts of *x*, read again if it has changed.
template <class T, class Read>
auto& facts_by(Read read, T& x) {
  if (!x.facts || x.read_version != x.version) {
    x.read_stamp = stamp_of(x.path);
    x.facts = read(x.path);
    x.read_version = x.version;
    x.driver = open_driver(*x.facts);
  }
  return *x.facts;
}

std::vector<fs::path> paths_in(const storage_content& x) {
  auto result = x.runs;
  result.insert(result.end(), x.sweeps.begin(), x.sweeps.end());
  for (auto& one : x.strange)
    result.push_back(one.path);
  return result;
}

/// Those of another folder that has its name now are read again.
template <class T>
void forget(T& x) {
  x.facts.reset();
  x.journal.reset();
  x.driver.reset();
}

} // namespace

expected<live_storage> live_storage::open(const fs::path& path) {
  live_storage result{path};
  TROUPE_TRY_VOID(look_into(path));
  for (auto to : {&result.own_changes_, &result.changes_}) {
    *to = unique_fd{::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)};
    if (!*to)
      return tl::unexpected{storage_error("watch", path, errno)};
  }
  result.own_watch_ =
    ::inotify_add_watch(result.changes_.get(), path.c_str(), of_storage);
  if (result.own_watch_ < 0
      || ::inotify_add_watch(result.own_changes_.get(), path.c_str(), of_name)
           < 0)
    return tl::unexpected{storage_error("watch", path, errno)};
  TROUPE_TRY_VOID(result.rescan());
  return result;
}

expected<void> live_storage::look_at_itself() {
  char buffer[4096];
  while (::read(own_changes_.get(), buffer, sizeof(buffer)) > 0)
    continue; // What happened does not matter.
  return expect_itself();
}

expected<void> live_storage::expect_itself() const {
  TROUPE_TRY(auto itself, look_up(path_));
  if (!itself.is_folder())
    return failure(ec::storage, "the folder " + path_.string() + " is gone");
  return {};
}

void live_storage::add_waits(std::vector<pollfd>& to) const {
  to.push_back({changes_.get(), POLLIN, 0});
  for (auto& [name, x] : runs_)
    if (x.driver)
      to.push_back({x.driver.get(), POLLIN, 0});
  for (auto& [name, x] : sweeps_)
    if (x.driver)
      to.push_back({x.driver.get(), POLLIN, 0});
}

int live_storage::watch(watch_map& to, const fs::path& folder,
                        const std::string& name, std::uint32_t what) {
  auto result = ::inotify_add_watch(changes_.get(), folder.c_str(), what);
  if (result >= 0) {
    to.emplace(result, name);
    is_announced_ = is_announced_ && is_local(folder);
  } else if (errno != ENOENT && errno != ENOTDIR) {
    if (++unwatched_ == 1)
      unwatched_reason_ = storage_error("watch", folder, errno).message;
    is_announced_ = false;
  }
  return result;
}

void live_storage::watch_run(watch_map& to, const std::string& name, run& x) {
  auto found = watch(to, x.path, name, of_run);
  if (found == x.watch && x.version != 0)
    return;
  if (x.watch >= 0)
    forget(x);
  x.watch = found;
  changed(x);
}

// Every folder is watched: one that is not a run's may be about to become it.
void live_storage::watch_all() {
  watch_map watches;
  unwatched_ = 0;
  is_announced_ = is_local(path_);
  boost::system::error_code code;
  for (fs::directory_iterator i{path_, code}, end; !code && i != end;
       i.increment(code)) {
    auto name = i->path().filename().string();
    if (!runs_.contains(name))
      watch(watches, i->path(), name,
            sweeps_.contains(name) ? of_run : of_folder);
  }
  for (auto& [name, x] : sweeps_)
    for (auto& one : facts_of(x).trials())
      if (one.status == run_status_kind::running)
        watch(watches, x.path / one.name, name, of_run);
  for (auto& [name, x] : runs_)
    watch_run(watches, name, x);
  for (auto& [watch, name] : watches_)
    if (!watches.contains(watch))
      ::inotify_rm_watch(changes_.get(), watch);
  watches_ = std::move(watches);
}

void live_storage::look_at_names(const storage_content& content) {
  std::set<std::string> names;
  for (auto& path : content.runs) {
    auto name = path.filename().string();
    names.insert(name);
    runs_.try_emplace(name).first->second.path = path;
  }
  std::erase_if(runs_, [&](auto& x) {
    auto is_trial = x.first.find('/') != x.first.npos;
    return is_trial ? !is_run(x.second.path).value_or(true)
                    : !names.contains(x.first);
  });
  names.clear();
  for (auto& path : content.sweeps) {
    auto name = path.filename().string();
    names.insert(name);
    auto [i, is_new] = sweeps_.try_emplace(name);
    i->second.path = path;
    if (is_new)
      changed(i->second);
  }
  std::erase_if(sweeps_, [&](auto& x) { return !names.contains(x.first); });
}

expected<storage_content> live_storage::read_content() const {
  auto found = look_into(path_);
  if (!found && found.error().code != ec::invalid_argument)
    return tl::unexpected{found.error()};
  TROUPE_TRY_VOID(expect_itself());
  return found ? std::move(*found) : storage_content{path_, {}, {}, {}};
}

void live_storage::take(storage_content content) {
  known_ = paths_in(content);
  look_at_names(content);
  strange_ = std::move(content.strange);
  watch_all();
  ++version_;
}

expected<void> live_storage::rescan() {
  return read_content().map([this](storage_content x) { take(std::move(x)); });
}

void live_storage::follow(const std::string& name) {
  auto slash = name.find('/');
  if (slash == name.npos || runs_.contains(name))
    return;
  auto of = sweeps_.find(name.substr(0, slash));
  auto trial = name.substr(slash + 1);
  if (of == sweeps_.end() || !is_trial_name(trial))
    return;
  auto path = of->second.path / trial;
  if (!is_run(path).value_or(false))
    return;
  auto& x = runs_[name];
  x.path = path;
  watch_run(watches_, name, x);
}

// Returns whether the folder has to be looked through again: what is made or
// removed may be what makes a folder a run, or a trial.
bool live_storage::note(const std::string& name, std::uint32_t event) {
  constexpr std::uint32_t made = IN_CREATE | IN_MOVED_TO;
  constexpr std::uint32_t gone = IN_DELETE | IN_MOVED_FROM | IN_IGNORED;
  if (auto run = runs_.find(name); run != runs_.end()) {
    changed(run->second);
    return (event & gone) != 0;
  }
  auto sweep = sweeps_.find(name);
  if (sweep == sweeps_.end())
    return true;
  changed(sweep->second);
  return (event & IN_ISDIR) != 0 && (event & (made | gone)) != 0;
}

void live_storage::look_at_drivers() {
  auto look = [this](auto& all) {
    for (auto& [name, x] : all)
      if (x.driver && has_ended(x.driver, 0)) {
        x.driver.reset();
        changed(x);
      }
  };
  look(runs_);
  look(sweeps_);
}

expected<void> live_storage::look() {
  auto again = false;
  alignas(inotify_event) char buffer[16 * 1024];
  for (ssize_t n; (n = ::read(changes_.get(), buffer, sizeof(buffer))) > 0;)
    for (ssize_t at = 0; at < n;) {
      inotify_event event;
      std::memcpy(&event, buffer + at, sizeof(event));
      at += static_cast<ssize_t>(sizeof(event) + event.len);
      if ((event.mask & IN_Q_OVERFLOW) != 0) {
        again = true;
        for (auto& [name, x] : runs_)
          changed(x);
        for (auto& [name, x] : sweeps_)
          changed(x);
      } else if (event.wd == own_watch_) {
        again = true;
      } else {
        auto [first, last] = watches_.equal_range(event.wd);
        for (auto i = first; i != last; ++i)
          again = note(i->second, event.mask) || again;
      }
    }
  look_at_drivers();
  return again ? rescan() : expected<void>{};
}

namespace {

/// Whether the driver of *x* is on another host or, without *watches*, on this
/// one, or whether one has resumed it.
template <class T>
bool may_have_gone_on(const T& x, bool watches) {
  if (!x.facts)
    return false;
  if (has_ended(*x.facts))
    return stamp_of(x.path) != x.read_stamp;
  return !watches || x.facts->presence == driver_presence::elsewhere;
}

} // namespace

expected<void> live_storage::look_elsewhere() {
  auto look = [this](auto& all) {
    for (auto& [name, x] : all)
      if (may_have_gone_on(x, unwatched_ == 0))
        changed(x);
  };
  look(runs_);
  look(sweeps_);
  auto content = read_content();
  if (!content) { // Shared storage may fail for a moment.
    auto itself = look_up(path_);
    return itself && !itself->is_folder() ? tl::unexpected{content.error()}
                                          : expected<void>{};
  }
  if (paths_in(*content) != known_)
    take(std::move(*content));
  return {};
}

std::uint64_t live_storage::version(const std::string& name) const {
  if (auto i = runs_.find(name); i != runs_.end())
    return i->second.version;
  auto i = sweeps_.find(name);
  return i == sweeps_.end() ? 0 : i->second.version;
}

std::optional<fs::path> live_storage::path_of(const std::string& name) const {
  if (auto run = runs_.find(name); run != runs_.end())
    return run->second.path;
  if (auto sweep = sweeps_.find(name); sweep != sweeps_.end())
    return sweep->second.path;
  return std::nullopt;
}

const found_run& live_storage::facts_of(run& x) {
  return facts_by(read_run, x);
}

const found_sweep& live_storage::facts_of(sweep& x) {
  return facts_by(read_sweep_at, x);
}

namespace {

/// Adds the last field to *object*: *data*, which is JSON, on the same line.
void end_with(json::object_writer& object, std::string_view name,
              std::string data) {
  std::ranges::replace(data, '\n', ' '); // Only between elements of JSON.
  object.begin(name) += data;
  object.end();
}

} // namespace

std::string live_storage::sweep_json(const std::string& name) {
  auto& found = facts_of(sweeps_.at(name));
  std::string result;
  json::object_writer out{result};
  out.field("name", utf8_text(name));
  out.field("can_stop", metric_value{!has_ended(found)});
  end_with(out, "sweep", sweep_data(tool::facts_of(found)));
  return result;
}

expected<std::string>
live_storage::comparison_json(const std::vector<std::string>& names) {
  if (names.size() > max_compared_runs)
    return failure(ec::invalid_argument,
                   concat(names.size(), " runs were chosen; at most ",
                          max_compared_runs, " can be compared"));
  std::vector<comparison::run> compared;
  for (auto& name : names) {
    auto i = runs_.find(name);
    if (i == runs_.end())
      return failure(ec::invalid_argument, "there is no run " + name);
    auto& x = compared.emplace_back();
    x.path = i->second.path;
    x.journal = i->second.journal;
  }
  TROUPE_TRY(auto found, compare_runs(std::move(compared)));
  for (std::size_t i = 0; i < names.size(); ++i)
    runs_.at(names[i]).journal = found.runs[i].journal;
  std::string result;
  json::object_writer out{result};
  end_with(out, "comparison", comparison_data(found));
  return result;
}

std::string live_storage::list_json() {
  json_object result;
  result["storage"] = utf8_text(path_.string());
  result["runs"] = json_object::array();
  for (auto& [name, x] : runs_)
    if (name.find('/') == name.npos) {
      auto one = to_json(facts_of(x));
      one["name"] = utf8_text(name); // of a trial, too, if a sweep is served
      result["runs"].push_back(std::move(one));
    }
  result["sweeps"] = json_object::array();
  for (auto& [name, x] : sweeps_)
    result["sweeps"].push_back(to_json(facts_of(x)));
  result["max_compared"] = max_compared_runs;
  result["complaints"] = json_object::array();
  for (auto& x : strange_)
    result["complaints"].push_back(
      utf8_text(x.path.filename().string() + ": " + x.reason.message));
  if (unwatched_ > 0)
    result["complaints"].push_back(utf8_text(
      unwatched_ == 1 ? unwatched_reason_
                      : concat(unwatched_reason_, ", and ", unwatched_ - 1,
                               " more: they are looked at every 2 s")));
  return json::text_of(result);
}

expected<std::string> live_storage::run_json(const std::string& name) {
  auto i = runs_.find(name);
  if (i == runs_.end())
    return failure(ec::invalid_argument, "there is no run " + name);
  auto& x = i->second;
  auto& facts = facts_of(x);
  if (!x.journal) {
    TROUPE_TRY(auto journal, digest_reader::open(x.path));
    x.journal = std::make_shared<digest_reader>(std::move(journal));
  }
  TROUPE_TRY_VOID(x.journal->read());
  std::string result;
  json::object_writer out{result};
  out.field("name", utf8_text(name)).field("state", facts.state_name());
  out.field("can_stop", metric_value{!has_ended(facts)});
  end_with(out, "run", page_data(read_run_facts(x.path), x.journal->digest()));
  return result;
}

} // namespace troupe::tool
