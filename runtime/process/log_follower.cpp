#include "troupe/runtime/process/log_follower.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/threads.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

constexpr auto interval = std::chrono::milliseconds{500};

/// A file that may not be there yet, and its size. A network share shows what
/// other hosts have written only to those who open the file again.
std::pair<unique_fd, off_t> look_at(const std::string& path) {
  unique_fd file{
    ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)};
  struct stat found {};
  if (!file || ::fstat(file.get(), &found) != 0 || !S_ISREG(found.st_mode))
    return {unique_fd{}, 0};
  return {std::move(file), found.st_size};
}

} // namespace

class log_follower::worker {
public:
  worker(std::string path, sink console)
    : path_(std::move(path)), console_(std::move(console)),
      shown_(look_at(path_).second) {}

  worker(const worker&) = delete;
  worker& operator=(const worker&) = delete;

  ~worker() {
    {
      std::lock_guard guard{mutex_};
      ends_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable())
      thread_.join();
  }

  expected<void> begin() {
    TROUPE_TRY(thread_, start_thread([this] { follow(); }));
    return {};
  }

private:
  void follow() {
    for (auto is_last = false; !is_last;) {
      {
        std::unique_lock lock{mutex_};
        is_last = changed_.wait_for(lock, interval, [this] { return ends_; });
      }
      try {
        show_news();
      } catch (...) { // Of the sink, or there is no memory.
        return;
      }
    }
  }

  void show_news() {
    auto [file, size] = look_at(path_);
    auto most = static_cast<off_t>(max_behind);
    if (size - shown_ > most) {
      console_(concat("\n[", size - shown_ - most,
                      " bytes more are in the log only]\n"));
      shown_ = size - most;
    }
    char bytes[16384];
    while (shown_ < size) {
      auto left =
        std::min(sizeof(bytes), static_cast<std::size_t>(size - shown_));
      auto n = ::pread(file.get(), bytes, left, shown_);
      if (n <= 0)
        return; // The next look tries again.
      shown_ += n;
      console_({bytes, static_cast<std::size_t>(n)});
    }
  }

  const std::string path_;
  const sink console_;
  off_t shown_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false; // guarded by mutex_
  std::thread thread_;
};

log_follower::log_follower(std::unique_ptr<worker> x) : worker_(std::move(x)) {}
log_follower::log_follower(log_follower&&) noexcept = default;
log_follower::~log_follower() = default;

expected<log_follower> log_follower::start(std::string path, sink console) {
  auto x = std::make_unique<worker>(std::move(path), std::move(console));
  TROUPE_TRY_VOID(x->begin());
  return log_follower{std::move(x)};
}

} // namespace troupe::internal
