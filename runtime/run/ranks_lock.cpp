#include "troupe/runtime/run/ranks_lock.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>

#include "troupe/runtime/process/process_tree.hpp"
#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe {

namespace {

constexpr const char* ranks_name = "ranks";

/// Of a token in the file.
constexpr std::size_t digits = 16;

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

// A spawner ends what its ranks leave behind. One that is killed together with
// its driver does not: that falls to the next driver.
void end_what_is_left(const unique_fd& ranks) {
  char text[digits];
  if (::pread(ranks.get(), text, digits, 0) != digits)
    return; // The first attempt of all.
  std::string value{text, digits};
  // A rank may have started this program to continue its run.
  const char* own = std::getenv(attempt_variable);
  if (!own || own != value)
    end_processes_with(std::string{attempt_variable} + '=' + value, kill_limit);
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
  auto text = attempt_value(token);
  if (::pwrite(file.get(), text.data(), text.size(), 0)
      == static_cast<ssize_t>(text.size()))
    return {};
  return tl::unexpected{storage_error("write", path, errno)};
}

} // namespace

std::string attempt_value(std::uint64_t token) {
  char text[digits + 1];
  std::snprintf(text, sizeof(text), "%016llx",
                static_cast<unsigned long long>(token));
  return text;
}

expected<void> ranks_lock::begin(const held_folder& run,
                                 std::chrono::milliseconds limit,
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
      return failure(ec::stopped, "the run was stopped while it waited for "
                                  "processes of an earlier attempt");
    if (std::chrono::steady_clock::now() >= deadline) {
      lock.reset();
      return tl::unexpected{ranks_are_left(run, limit)};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  }
  if (token_ == 0)
    end_what_is_left(file);
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
  return {};
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
