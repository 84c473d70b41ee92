#include "troupe/runtime/process/log_tee.hpp"

#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/threads.hpp"
#include "troupe/runtime/process/would_block.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {
namespace {

// What a pipe holds at most without privileges, in bytes.
constexpr ssize_t max_pipe_size = 1 << 20;

// For the line that says how much is in the log only.
constexpr std::size_t note_size = 64;

} // namespace

class log_tee::worker {
public:
  worker(unique_fd log, unique_fd reader, unique_fd writer, wake_event stop,
         sink console)
    : writer{std::move(writer)}, log_{std::move(log)},
      reader_{std::move(reader)}, stop_{std::move(stop)},
      console_(std::move(console)) {}

  worker(const worker&) = delete;
  worker& operator=(const worker&) = delete;

  ~worker() {
    writer.reset();
    stop_.notify();
    if (copying_.joinable())
      copying_.join();
    else
      end_of_input();
    if (printing_.joinable())
      printing_.join();
  }

  expected<void> begin() {
    // The threads need no more than this: they must not run out of memory.
    waiting_.reserve(max_behind + note_size);
    printed_.reserve(max_behind + note_size);
    TROUPE_TRY(printing_, start_thread([this] { print(); }));
    TROUPE_TRY(copying_, start_thread([this] { copy(); }));
    return {};
  }

  unique_fd writer;

private:
  void copy() {
    char bytes[16384];
    ssize_t after_stop = 0;
    for (;;) {
      pollfd waits[] = {{reader_.get(), POLLIN, 0}, {stop_.fd(), POLLIN, 0}};
      if (::poll(waits, 2, -1) < 0)
        continue;
      auto n = ::read(reader_.get(), bytes, sizeof(bytes));
      if (n == 0 || (n < 0 && would_block(errno) && waits[1].revents != 0))
        break;
      if (n < 0)
        continue;
      take({bytes, static_cast<std::size_t>(n)});
      // A process that outlived the rank may print forever.
      if (waits[1].revents != 0 && (after_stop += n) > max_pipe_size)
        break;
    }
    end_of_input();
  }

  void end_of_input() {
    std::lock_guard guard{mutex_};
    ended_ = true;
    changed_.notify_one();
  }

  void take(std::string_view text) {
    for (auto rest = text; !rest.empty();) {
      auto n = ::write(log_.get(), rest.data(), rest.size());
      if (n < 0 && errno != EINTR)
        break; // Disk full, perhaps: the next piece tries again.
      rest.remove_prefix(n > 0 ? static_cast<std::size_t>(n) : 0);
    }
    std::lock_guard guard{mutex_};
    if (waiting_.size() + text.size() > max_behind)
      left_out_ += text.size();
    else
      waiting_ += text;
    changed_.notify_one();
  }

  void print() {
    bool broken = !console_;
    for (;;) {
      printed_.clear();
      {
        std::unique_lock lock{mutex_};
        changed_.wait(lock, [this] { return ended_ || !waiting_.empty(); });
        if (waiting_.empty())
          return;
        printed_.swap(waiting_);
        if (left_out_ > 0)
          write_left_out();
      }
      if (broken)
        continue;
      try {
        console_(printed_);
      } catch (...) {
        broken = true;
      }
    }
  }

  void write_left_out() {
    printed_ += "\n[";
    append_number(printed_, left_out_);
    printed_ += " bytes more are in the log only]\n";
    left_out_ = 0;
  }

  unique_fd log_;
  unique_fd reader_;
  wake_event stop_;
  sink console_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string waiting_; // For the sink.
  std::string printed_; // Of the printing thread.
  std::size_t left_out_ = 0;
  bool ended_ = false;

  std::thread printing_;
  std::thread copying_;
};

expected<log_tee> log_tee::start(const std::string& path, sink console) {
  TROUPE_TRY(auto log, open_own_file(AT_FDCWD, path.c_str(),
                                     O_WRONLY | O_APPEND | O_CREAT, ec::storage,
                                     "cannot open the log " + path));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return system_failure(ec::storage, "cannot make a pipe for " + path);
  unique_fd reader{ends[0]};
  unique_fd writer{ends[1]};
  ::fcntl(reader.get(), F_SETFL, O_NONBLOCK);
  wake_event stop;
  if (!stop)
    return system_failure(ec::storage, "cannot make an event for " + path);
  auto made = std::make_unique<worker>(std::move(log), std::move(reader),
                                       std::move(writer), std::move(stop),
                                       std::move(console));
  if (auto ok = made->begin(); !ok)
    return failure(ok.error().code, ok.error().message + " for " + path);
  return log_tee{std::move(made)};
}

log_tee::log_tee(std::unique_ptr<worker> x) : worker_{std::move(x)} {}

log_tee::log_tee(log_tee&&) noexcept = default;

log_tee::~log_tee() = default;

expected<unique_fd> log_tee::writer() const {
  return duplicate(worker_->writer.get());
}

} // namespace troupe::internal
