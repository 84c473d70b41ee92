#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "troupe/runtime/process/forked_process.hpp"

namespace troupe::internal {

/// Makes items 0 .. count - 1 on several threads and hands them out in order.
///
/// At most *window* items are ready or being made. If *T* is an optional, the
/// first one that is empty or fails is the last. Destroying it stops and
/// joins the threads without making further items. Hold it by `owned_ptr`: in a
/// process forked from the one that made it there is nothing to join.
template <class T>
class ordered_prefetcher {
public:
  /// Makes item *k* on thread *worker*; should leave early, with any
  /// exception, once a stop is requested.
  using make_function =
    std::function<T(std::stop_token stop, int worker, std::int64_t k)>;

  ordered_prefetcher(std::int64_t count, int workers, std::int64_t window,
                     make_function make)
    : count_(count), window_(window), make_(std::move(make)) {
    for (int i = 0; i < workers; ++i)
      threads_.emplace_back(
        [this, i](std::stop_token stop) { work(std::move(stop), i); });
  }

  ~ordered_prefetcher() {
    for (auto& thread : threads_)
      thread.request_stop();
    threads_.clear();
  }

  /// Waits for the next item and returns it; nothing after the last one.
  /// Rethrows the exception of the function that makes it, again and again if
  /// that was the end. Throws in a forked process, which has none of the
  /// threads.
  std::optional<T> next() {
    if (!owner_.is_here())
      throw std::logic_error{"this process was forked by the one whose threads "
                             "read ahead: it gets no more items"};
    std::unique_lock guard{mutex_};
    if (given_ == count_) {
      if (failure_)
        std::rethrow_exception(failure_);
      return std::nullopt;
    }
    ready_.wait(guard, [this] { return items_.count(given_) != 0; });
    auto item = std::move(items_.extract(given_).mapped());
    ++given_;
    if (is_end(item))
      failure_ = item.failure;
    guard.unlock();
    room_.notify_all();
    if (item.failure)
      std::rethrow_exception(item.failure);
    return std::move(item.value);
  }

private:
  struct entry {
    std::optional<T> value;
    std::exception_ptr failure;
  };

  static bool is_end([[maybe_unused]] const entry& x) {
    if constexpr (requires { x.value->has_value(); })
      return x.failure || !x.value->has_value();
    else
      return false;
  }

  void work(std::stop_token stop, int worker) {
    auto process = ::getpid();
    for (;;) {
      std::unique_lock guard{mutex_};
      auto room = [this] {
        return taken_ >= count_ || taken_ < given_ + window_;
      };
      if (!room_.wait(guard, stop, room) || stop.stop_requested()
          || taken_ >= count_)
        return;
      auto k = taken_++;
      guard.unlock();
      entry item;
      error failure;
      try {
        item.value.emplace(make_(stop, worker, k));
      } catch (...) {
        item.failure = std::current_exception();
        if (::getpid() != process)
          failure = caught("it failed");
      }
      // A process that the function forked has this thread only, and would
      // continue it.
      leave_if_forked(process, "a thread that reads ahead", failure);
      guard.lock();
      if (is_end(item))
        count_ = std::min(count_, k + 1);
      items_.emplace(k, std::move(item));
      guard.unlock();
      ready_.notify_one();
    }
  }

  const owner_process owner_;
  std::int64_t count_;
  std::int64_t window_;
  make_function make_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::condition_variable_any room_;
  std::int64_t taken_ = 0; // items that a thread has begun
  std::int64_t given_ = 0; // items that next() has returned
  std::map<std::int64_t, entry> items_;
  std::exception_ptr failure_;        // of the last item, once it was given
  std::vector<std::jthread> threads_; // last: they use all of the above
};

} // namespace troupe::internal
