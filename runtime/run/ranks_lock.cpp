#include "troupe/runtime/run/ranks_lock.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <optional>
#include <random>
#include <string>
#include <thread>

#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/process/process_tree.hpp"
#include "troupe/runtime/process/quiet_thread.hpp"
#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe {

namespace {

constexpr const char* ranks_name = "ranks";

/// Of a number in the file: the token, then the device and the inode of the
/// file itself. A copy of it says those of the original.
constexpr std::size_t digits = 16;

std::string to_text(std::uint64_t x) {
  char text[digits + 1];
  std::snprintf(text, sizeof(text), "%016llx",
                static_cast<unsigned long long>(x));
  return text;
}

expected<std::string> place_of(const unique_fd& file, const fs::path& path) {
  struct stat found {};
  if (::fstat(file.get(), &found) != 0)
    return tl::unexpected{storage_error("look up", path, errno)};
  return to_text(found.st_dev) + to_text(found.st_ino);
}

std::uint64_t new_token() {
  std::random_device random;
  return std::uint64_t{random()} << 32 | random();
}

/// Opens the file behind *x* again: a lock of the one is no lock of the other.
unique_fd opened_again(const unique_fd& x) {
  auto path = "/proc/self/fd/" + std::to_string(x.get());
  return unique_fd{::open(path.c_str(), O_RDWR | O_CLOEXEC)};
}

/// The processes that have *file* open, for people; empty if none is found.
std::string processes_with(const struct stat& file) {
  std::string result;
  boost::system::error_code code;
  for (fs::directory_iterator i{"/proc", code}, end; !code && i != end;
       i.increment(code)) {
    auto pid = i->path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos)
      continue;
    boost::system::error_code gone;
    for (fs::directory_iterator fd{i->path() / "fd", gone}; !gone && fd != end;
         fd.increment(gone)) {
      struct stat found {};
      if (::stat(fd->path().c_str(), &found) != 0 || !is_same_file(found, file))
        continue;
      result += (result.empty() ? "pid " : ", pid ") + pid;
      break;
    }
  }
  return result;
}

/// How long what was killed may take to be gone.
constexpr auto kill_limit = std::chrono::seconds{2};

/// How long that may take together with the search.
constexpr auto search_limit = std::chrono::seconds{4};

tl::unexpected<error> stopped() {
  return failure(ec::stopped, "the run was stopped while it waited for "
                              "processes of an earlier attempt");
}

std::string list_of(const std::vector<pid_t>& pids) {
  std::string result;
  for (auto pid : pids)
    result += (result.empty() ? "pid " : ", pid ") + std::to_string(pid);
  return result;
}

/// What was killed of the attempt that *variable* names; nothing if that is not
/// known after `search_limit`.
expected<std::optional<killed_processes>>
end_programs_with(std::string variable, const std::function<bool()>& given_up) {
  std::packaged_task<killed_processes()> search{
    [variable = std::move(variable)] {
      while (failpoint("ranks.search") != 0) // A process that cannot be read.
        std::this_thread::sleep_for(std::chrono::milliseconds{5});
      return end_processes_with(variable, kill_limit);
    }};
  auto found = search.get_future();
  auto deadline = std::chrono::steady_clock::now() + search_limit;
  if (auto ok = start_detached_thread(std::move(search)); !ok)
    return tl::unexpected{ok.error()};
  while (found.wait_for(std::chrono::milliseconds{20})
         != std::future_status::ready) {
    if (given_up())
      return stopped();
    if (std::chrono::steady_clock::now() >= deadline)
      return std::nullopt;
  }
  return found.get();
}

// A spawner ends what its ranks leave behind. One that is killed together with
// its driver does not: that falls to the next driver.
expected<std::vector<store_event>>
end_what_is_left(const unique_fd& ranks, const fs::path& path,
                 const std::function<bool()>& given_up) {
  std::vector<store_event> result;
  auto here = place_of(ranks, path);
  if (!here)
    return tl::unexpected{here.error()};
  char text[3 * digits];
  if (::pread(ranks.get(), text, sizeof(text), 0)
      != static_cast<ssize_t>(sizeof(text)))
    return result; // The first attempt of all.
  std::string said{text, sizeof(text)};
  if (said.substr(digits) != *here)
    return result; // A copy of another run.
  said.resize(digits);
  // A rank may have started this program to continue its run.
  const char* own = std::getenv(attempt_variable);
  if (own && own == said)
    return result;
  auto variable = std::string{attempt_variable} + '=' + said;
  auto found = end_programs_with(variable, given_up);
  if (!found)
    return tl::unexpected{found.error()};
  if (!*found) {
    result.push_back(
      {"programs_not_searched",
       {{"variable", variable}},
       false,
       "programs that ranks of an earlier attempt left may still run: "
       "processes of this host do not show their environments. They have "
         + variable + " in theirs"});
    return result;
  }
  auto& killed = **found;
  if (!killed.left.empty())
    return failure(ec::timeout,
                   "no attempt can begin at " + path.parent_path().string()
                     + ": programs that ranks of an earlier one left have not "
                       "ended within "
                     + std::to_string(kill_limit.count())
                     + " s after they were killed: " + list_of(killed.left));
  if (!killed.gone.empty())
    result.push_back({"programs_killed",
                      {{"processes", list_of(killed.gone)}},
                      false,
                      "killed what ranks of an earlier attempt had left: "
                        + list_of(killed.gone)});
  return result;
}

error ranks_are_left(const held_folder& run, std::chrono::milliseconds limit) {
  struct stat file {};
  auto found =
    run.look_up(ranks_name, file) == 0 ? processes_with(file) : std::string{};
  return {ec::timeout,
          "no attempt of the run " + run.path().string()
            + " can begin: processes of an earlier one have not ended within "
            + std::to_string(limit.count()) + " ms: "
            + (found.empty() ? "none that can be seen from here" : found)};
}

expected<void> write_token(const unique_fd& file, const fs::path& path,
                           std::uint64_t token) {
  auto place = place_of(file, path);
  if (!place)
    return tl::unexpected{place.error()};
  auto text = attempt_value(token) + *place;
  if (::pwrite(file.get(), text.data(), text.size(), 0)
      == static_cast<ssize_t>(text.size()))
    return {};
  return tl::unexpected{storage_error("write", path, errno)};
}

} // namespace

std::string attempt_value(std::uint64_t token) {
  return to_text(token);
}

expected<std::vector<store_event>>
ranks_lock::begin(const held_folder& run, std::chrono::milliseconds limit,
                  const std::function<bool()>& given_up) {
  release();
  auto path = run.path() / ranks_name;
  auto opened = run.open_file(ranks_name, O_RDWR | O_CREAT, "open");
  if (!opened)
    return tl::unexpected{opened.error()};
  own_lock lock{std::move(*opened)};
  auto& file = lock.file();
  auto deadline = std::chrono::steady_clock::now() + limit;
  for (;;) {
    auto taken = lock_file(file, path);
    if (!taken)
      return tl::unexpected{taken.error()};
    if (*taken)
      break;
    if (given_up())
      return stopped();
    if (std::chrono::steady_clock::now() >= deadline) {
      lock.reset();
      return tl::unexpected{ranks_are_left(run, limit)};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  }
  auto events = token_ == 0 ? end_what_is_left(file, path, given_up)
                            : std::vector<store_event>{};
  if (!events)
    return tl::unexpected{events.error()};
  auto token = new_token();
  auto written = write_token(file, path, token);
  auto shared =
    written.and_then([&] { return lock_file(file, path, LOCK_SH); });
  if (!shared)
    return tl::unexpected{shared.error()};
  if (!*shared)
    return failure(ec::conflict, "another driver begins an attempt of the run "
                                   + run.path().string() + " at this moment");
  std::lock_guard guard{mutex_};
  path_ = std::move(path);
  file_ = std::move(lock);
  token_ = token;
  return events;
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
  std::lock_guard guard{mutex_};
  file_.reset();
}

expected<unique_fd> join_attempt(const ranks_ticket& ticket) {
  auto file = opened_again(ticket.file);
  if (!file)
    return tl::unexpected{storage_error("open", "the run's file ranks", errno)};
  auto taken = lock_file(file, "the run's file ranks", LOCK_SH);
  if (!taken)
    return tl::unexpected{taken.error()};
  char text[digits];
  auto size = *taken ? ::pread(file.get(), text, digits, 0) : 0;
  if (size < 0)
    return tl::unexpected{storage_error("read", "the run's file ranks", errno)};
  if (std::string_view{text, static_cast<std::size_t>(size)}
      != attempt_value(ticket.token))
    return failure(ec::stopped, "this rank came too late: another attempt of "
                                "the run has begun");
  return file;
}

} // namespace troupe
