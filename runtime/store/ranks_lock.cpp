#include "troupe/runtime/store/ranks_lock.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <future>
#include <optional>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>

#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/process/processes.hpp"
#include "troupe/runtime/process/spawner.hpp"
#include "troupe/runtime/process/threads.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// How many digits each number in the file has: the token, then the device and
/// the inode of the file itself. A copy of it says those of the original.
constexpr std::size_t digits = 16;

std::string to_text(std::uint64_t x) {
  std::string result;
  append_hex(result, x);
  return result;
}

expected<std::string> place_of(const unique_fd& file, const fs::path& path) {
  struct stat found {};
  if (::fstat(file.get(), &found) != 0)
    return tl::unexpected{storage_error("look up", path, errno)};
  return to_text(found.st_dev) + to_text(found.st_ino);
}

/// Opens the file behind *x* again: locks belong to the open file.
unique_fd opened_again(const unique_fd& x) {
  auto path = concat("/proc/self/fd/", x.get());
  return unique_fd{::open(path.c_str(), O_RDWR | O_CLOEXEC)};
}

/// How long what was killed may take to be gone.
constexpr auto kill_limit = std::chrono::seconds{2};

/// How long that may take together with the search.
constexpr auto search_limit = std::chrono::seconds{4};

/// Agents wait for a lost driver at least 10 s.
constexpr auto least_agents_patience = std::chrono::seconds{10};

/// And may then take this long until their ranks have ended.
constexpr auto agents_ending = std::chrono::seconds{5};

/// How long what ranks have forked may take to end by itself.
constexpr auto child_grace = std::chrono::milliseconds{100};

tl::unexpected<error> stopped() {
  return failure(ec::stopped, "the run was stopped while it waited for "
                              "processes of an earlier attempt");
}

std::string list_of(const std::vector<pid_t>& pids) {
  std::string result;
  for (auto pid : pids)
    result += concat((result.empty() ? "pid " : ", pid "), pid);
  return result;
}

/// What *end* has killed; nothing if that is not known after `search_limit`. A
/// search that is given up kills nothing more: an attempt may begin.
expected<std::optional<killed_processes>>
search(std::function<killed_processes(const std::stop_token&)> end,
       const std::function<bool()>& given_up) {
  std::stop_source over;
  std::packaged_task<killed_processes()> task{
    [end = std::move(end), is_over = over.get_token()] {
      while (failpoint("ranks.search") != 0) // A process that cannot be read.
        std::this_thread::sleep_for(std::chrono::milliseconds{5});
      return end(is_over);
    }};
  auto found = task.get_future();
  auto deadline = std::chrono::steady_clock::now() + search_limit;
  TROUPE_TRY(auto thread, start_thread(std::move(task)));
  while (found.wait_for(std::chrono::milliseconds{20})
         != std::future_status::ready) {
    auto is_cancelled = given_up();
    if (!is_cancelled && std::chrono::steady_clock::now() < deadline)
      continue;
    over.request_stop();
    thread.detach(); // It may be held up by a process that cannot be read.
    if (is_cancelled)
      return stopped();
    return std::nullopt;
  }
  // At its end already; who forks next should have no other thread.
  thread.join();
  return found.get();
}

store_event programs_killed(const killed_processes& x) {
  return {"programs_killed", {{"processes", list_of(x.gone)}}, false, {}};
}

store_event programs_not_searched(const std::string& variable,
                                  const std::string& reason) {
  return {"programs_not_searched",
          {{"variable", variable}, {"reason", reason}},
          false,
          {}};
}

/// What the file `ranks` says of the latest attempt.
struct noted_attempt {
  std::string variable; ///< Empty: there was none.
  bool is_here = false; ///< The file is the one that this was written to.
};

expected<noted_attempt> read_attempt(const unique_fd& ranks,
                                     const fs::path& path) {
  TROUPE_TRY(auto here, place_of(ranks, path));
  char text[3 * digits];
  auto size = ::pread(ranks.get(), text, sizeof(text), 0);
  if (size < 0)
    return tl::unexpected{storage_error("read", path, errno)};
  std::string_view said{text, static_cast<std::size_t>(size)};
  if (said.size() < digits)
    return noted_attempt{};
  return noted_attempt{std::string{attempt_variable} + '='
                         + std::string{said.substr(0, digits)},
                       said.substr(digits) == here};
}

// A spawner ends what its ranks leave behind. One that died, with its driver or
// alone, did not: that is left to the next attempt.
expected<void> end_programs(const unique_fd& ranks, const fs::path& path,
                            const std::function<bool()>& given_up,
                            const store_event_listener& note) {
  TROUPE_TRY(auto last, read_attempt(ranks, path));
  if (last.variable.empty())
    return {}; // The first attempt of all.
  if (!last.is_here)
    return note(programs_not_searched(
      last.variable, "the run's folder is a copy, or on a file system that "
                     "was mounted again"));
  auto end = [variable = last.variable](const std::stop_token& over) {
    return end_processes_with(variable, kill_limit, over);
  };
  TROUPE_TRY(auto found, search(std::move(end), given_up));
  if (!found)
    return note(programs_not_searched(
      last.variable, "processes of this host do not show their environments"));
  auto& killed = *found;
  if (!killed.gone.empty())
    TROUPE_TRY_VOID(note(programs_killed(killed)));
  if (!killed.left.empty())
    return failure(
      ec::timeout,
      concat("programs that ranks of an earlier attempt of the run ",
             path.parent_path().string(), " left have not ended within ",
             duration_text(kill_limit),
             " after they were killed: ", list_of(killed.left)));
  if (killed.blind != 0)
    return note(programs_not_searched(
      last.variable, "processes could not be looked at: "
                       + std::system_category().message(killed.blind)));
  return {};
}

// Kills the children of ranks that run no program of their own: each has, from
// its rank, a lock that ends only with the last of them. A process that merely
// reads the file is spared.
expected<void> end_rank_children(const unique_fd& ranks, const fs::path& path,
                                 const std::function<bool()>& given_up,
                                 const store_event_listener& note) {
  struct stat file {};
  if (::fstat(ranks.get(), &file) != 0)
    return tl::unexpected{storage_error("look up", path, errno)};
  auto end = [file](const std::stop_token& over) {
    return end_inheritors(file, run_layout::ranks, kill_limit, over);
  };
  TROUPE_TRY(auto found, search(end, given_up));
  // What could not be found, or be killed, keeps its lock.
  if (found && !found->gone.empty())
    return note(programs_killed(*found));
  return {};
}

error ranks_are_left(own_lock& ranks, const fs::path& run,
                     std::chrono::milliseconds limit) {
  struct stat file {};
  auto known = ::fstat(ranks.file().get(), &file) == 0;
  ranks.reset(); // This process does not belong to the list.
  auto found =
    known ? list_of(processes_with(file, run_layout::ranks)) : std::string{};
  return {ec::timeout,
          concat("processes of an earlier attempt of the run ", run.string(),
                 " have not ended within ", duration_text(limit), ": ",
                 (found.empty() ? "none that can be seen from here" : found))};
}

/// Takes the lock alone, once no process of an earlier attempt has it. Returns
/// the hosts that were given up instead; empty: none.
expected<std::string> take_alone(own_lock& lock, const fs::path& path,
                                 std::chrono::milliseconds limit,
                                 const std::function<bool()>& given_up,
                                 const store_event_listener& note,
                                 const ranks_lock::abandoned_hosts& abandoned) {
  auto begin = std::chrono::steady_clock::now();
  auto next_search = begin + std::min(limit, child_grace);
  auto has_searched = false;
  for (;;) {
    TROUPE_TRY(auto taken, lock_file(lock.file(), path));
    if (taken)
      return std::string{};
    if (given_up())
      return stopped();
    auto now = std::chrono::steady_clock::now();
    if (now >= next_search) {
      TROUPE_TRY_VOID(end_rank_children(lock.file(), path, given_up, note));
      next_search = std::chrono::steady_clock::now() + search_limit;
      has_searched = true;
      continue;
    }
    auto waited =
      std::chrono::duration_cast<std::chrono::milliseconds>(now - begin);
    // Not before those of this host are gone.
    if (auto hosts = has_searched ? abandoned(waited) : std::string{};
        !hosts.empty())
      return hosts;
    if (now >= begin + limit)
      return tl::unexpected{ranks_are_left(lock, path.parent_path(), limit)};
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  }
}

/// Whether *file*, the file `ranks` at *path*, has *token*.
expected<bool> has_token(const unique_fd& file, const fs::path& path,
                         std::uint64_t token) {
  char text[digits];
  auto size = ::pread(file.get(), text, digits, 0);
  if (size < 0)
    return tl::unexpected{storage_error("read", path, errno)};
  return std::string_view{text, static_cast<std::size_t>(size)}
         == attempt_value(token);
}

expected<void> write_token(const unique_fd& file, const fs::path& path,
                           std::uint64_t token) {
  TROUPE_TRY(auto place, place_of(file, path));
  return overwrite(file, path, attempt_value(token) + place);
}

/// Gives up what holds the lock of *old*, the file `ranks` of *run*: another
/// file gets its name. A process that has the old one open joins no attempt any
/// more.
expected<own_lock> replaced(const own_lock& old, const held_folder& run,
                            const fs::path& path, const std::string& hosts,
                            const store_event_listener& note) {
  TROUPE_TRY_VOID(note({"ranks_abandoned", {{"hosts", hosts}}, false, {}}));
  auto unused = random_bits();
  TROUPE_TRY_VOID(write_token(old.file(), path, unused));
  TROUPE_TRY_VOID(run.replace_file(run_layout::ranks, attempt_value(unused)));
  return own_lock::open(run, run_layout::ranks, O_RDWR | O_CREAT, "open");
}

} // namespace

std::chrono::milliseconds
patience_of_agents(std::chrono::milliseconds lost_after) noexcept {
  return std::max<std::chrono::milliseconds>(lost_after, least_agents_patience)
         + agents_ending;
}

std::string attempt_value(std::uint64_t token) {
  return to_text(token);
}

expected<void> ranks_lock::begin(const held_folder& run,
                                 std::chrono::milliseconds limit,
                                 const std::function<bool()>& given_up,
                                 const store_event_listener& note,
                                 const abandoned_hosts& abandoned) {
  release();
  auto losses = spawner_losses();
  auto path = run.path() / run_layout::ranks;
  TROUPE_TRY(auto opened,
             own_lock::open(run, run_layout::ranks, O_RDWR | O_CREAT, "open"));
  TROUPE_TRY(auto hosts,
             take_alone(opened, path, limit, given_up, note, abandoned));
  // A spawner of this driver has ended what its ranks left, unless it was lost.
  if (token_ == 0 || losses != losses_)
    TROUPE_TRY_VOID(end_programs(opened.file(), path, given_up, note));
  if (!hosts.empty()) {
    TROUPE_TRY(opened, replaced(opened, run, path, hosts, note));
    TROUPE_TRY_VOID(
      take_alone(opened, path, limit, given_up, note, no_abandoned_hosts));
  }
  auto& file = opened.file();
  auto token = random_bits();
  TROUPE_TRY_VOID(write_token(file, path, token));
  TROUPE_TRY(auto shared, lock_file(file, path, LOCK_SH));
  if (!shared)
    return failure(ec::conflict, "another driver begins an attempt of the run "
                                   + run.path().string() + " at this moment");
  std::lock_guard guard{mutex_};
  path_ = std::move(path);
  file_ = std::move(opened);
  token_ = token;
  losses_ = losses;
  return {};
}

expected<void> ranks_lock::end_remaining(const held_folder& run,
                                         const store_event_listener& note) {
  auto path = run.path() / run_layout::ranks;
  auto token = std::uint64_t{0};
  {
    std::lock_guard guard{mutex_};
    if (losses_ != spawner_losses())
      token = token_;
  }
  if (token == 0)
    return {};
  TROUPE_TRY(auto file, run.open_file(run_layout::ranks, O_RDONLY, "open"));
  auto last = read_attempt(file, path);
  if (!last || !last->variable.ends_with('=' + attempt_value(token)))
    return {}; // Another driver's.
  auto never = [] { return false; };
  // Both, even if a journal that takes no line is why the run ends.
  auto children = end_rank_children(file, path, never, note);
  auto programs = end_programs(file, path, never, note);
  auto ended = children.and_then([&] { return programs; });
  if (ended)
    return ended;
  return note(
    {"programs_left", {{"reason", ended.error().message}}, false, {}});
}

expected<ranks_ticket> ranks_lock::ticket() const {
  std::lock_guard guard{mutex_};
  if (!file_)
    return failure(ec::stopped, "no attempt of the run is under way");
  auto file = opened_again(file_.file());
  if (!file)
    return tl::unexpected{storage_error("open", path_, errno)};
  return ranks_ticket{std::move(file), token_};
}

void ranks_lock::release() {
  own_lock ended; // Closed after the mutex is free: the storage may be slow.
  std::lock_guard guard{mutex_};
  ended = std::move(file_);
}

std::uint64_t ranks_lock::token() const {
  std::lock_guard guard{mutex_};
  return file_ ? token_ : 0;
}

expected<ranks_ticket> open_ranks_ticket(const fs::path& run,
                                         std::uint64_t token) {
  auto path = run / run_layout::ranks;
  auto other = [&run](const std::string& why) {
    return failure(ec::invalid_config,
                   concat("the folder of the run, ", run.string(),
                          ", is not the driver's on this host: ", why,
                          "; mount the same storage there on every host"));
  };
  // To open a folder makes NFS ask for its latest entries: a driver on another
  // host may have replaced the file a moment ago.
  unique_fd folder{uninterrupted(
    [&] { return ::open(run.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); })};
  unique_fd file;
  if (folder)
    file = unique_fd{uninterrupted([&] {
      return ::openat(folder.get(), run_layout::ranks,
                      O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    })};
  if (!file) {
    auto code = errno;
    auto why = storage_error("open", path, code);
    return may_pass(code) ? tl::unexpected{std::move(why)} : other(why.message);
  }
  TROUPE_TRY(auto is_latest, has_token(file, path, token));
  if (!is_latest)
    return failure(ec::conflict,
                   concat("the folder of the run, ", run.string(),
                          ", has another attempt on this host than the driver: "
                          "mount the same storage there on every host"));
  return ranks_ticket{std::move(file), token};
}

expected<unique_fd> join_attempt(const ranks_ticket& ticket) {
  auto file = opened_again(ticket.file);
  if (!file)
    return tl::unexpected{storage_error("open", "the run's file ranks", errno)};
  TROUPE_TRY(auto taken, lock_file(file, "the run's file ranks", LOCK_SH));
  TROUPE_TRY(auto is_latest,
             has_token(file, "the run's file ranks", ticket.token));
  if (!taken || !is_latest)
    return failure(
      ec::stopped,
      "this rank started too late: another attempt of the run has begun");
  sign_offset(file); // For `end_inheritors`.
  return file;
}

} // namespace troupe::internal
