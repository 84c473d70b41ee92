#include "troupe/trainers/torch/groups/c10d_groups.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/StringUtil.h>
#include <dlfcn.h>

#include "troupe/runtime/process/threads.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/trainers/rank_link.hpp"
#include "troupe/trainers/torch/groups/nccl/nccl_library.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe::internal {

namespace {

struct reaper_state {
  std::mutex mutex;
  std::condition_variable changed;
  int pending = 0;
};

/// Never destroyed: threads may outlive `main`.
reaper_state& state() {
  static auto* instance = new reaper_state;
  return *instance;
}

} // namespace

void group_reaper::dispose(c10::intrusive_ptr<c10d::Backend> group) {
  if (!group)
    return;
  auto& shared = state();
  {
    std::lock_guard guard{shared.mutex};
    ++shared.pending;
  }
  auto gone = [&shared] {
    std::lock_guard guard{shared.mutex};
    --shared.pending;
    shared.changed.notify_all();
  };
  // Not owned by the thread: if that does not start, the group would be
  // destroyed here.
  auto* released = group.release();
  auto started = start_detached_thread([released, gone] {
    c10::intrusive_ptr<c10d::Backend>::reclaim(released).reset();
    gone();
  });
  if (!started)
    gone();
}

int group_reaper::pending() {
  std::lock_guard guard{state().mutex};
  return state().pending;
}

bool group_reaper::drain(std::chrono::milliseconds limit) {
  auto& shared = state();
  std::unique_lock guard{shared.mutex};
  return shared.changed.wait_for(guard, limit,
                                 [&shared] { return shared.pending == 0; });
}

namespace {

[[noreturn]] void lacks(int rank, const std::string& what) {
  throw train_error{{ec::unsupported, c10::str("rank ", rank, ": ", what)}};
}

/// Where to look for `troupe_nccl`: the user's path, then the loader's.
/// Programs of the build tree and users of the package have its folder in their
/// run path; the libraries do not.
std::vector<std::string> places() {
  std::vector<std::string> result;
  if (auto* given = std::getenv("TROUPE_NCCL_LIBRARY"))
    result.emplace_back(given);
  result.emplace_back("libtroupe_nccl.so");
  return result;
}

nccl_function nccl_library(int rank) {
  std::string reasons;
  for (auto& place : places()) {
    if (auto* library = ::dlopen(place.c_str(), RTLD_NOW | RTLD_GLOBAL)) {
      auto* function =
        reinterpret_cast<nccl_function>(::dlsym(library, nccl_symbol));
      if (function)
        return function;
    }
    auto* reason = ::dlerror();
    append_item(reasons, reason ? reason : place.c_str(), "; ");
  }
  lacks(rank, "the library troupe_nccl could not be loaded: " + reasons
                + " (if the build has none, its configuration said why; "
                  "torch_config::backend gloo works without it)");
}

/// A result that one thread leaves for another: the first value or error
/// counts.
template <class T>
class first_outcome {
public:
  void succeed(T x) {
    if (!decided_.test_and_set())
      promise_.set_value(std::move(x));
  }

  void fail(std::exception_ptr x) {
    if (!decided_.test_and_set())
      promise_.set_exception(std::move(x));
  }

  std::future<T> future() { return promise_.get_future(); }

private:
  std::atomic_flag decided_;
  std::promise<T> promise_;
};

/// How long communicators that did not drain may take to abort.
constexpr auto abort_limit = std::chrono::seconds{1};

/// Calls *f* on a thread of its own; returns whether it was over within
/// *limit*. An exception ends it. False at once if no thread can be started.
bool finishes_within(std::chrono::milliseconds limit, std::function<void()> f) {
  auto over = std::make_shared<std::promise<void>>();
  auto finished = over->get_future();
  auto started = start_detached_thread([f = std::move(f), over] {
    try {
      f();
    } catch (...) {
      // The caller aborts or destroys a group that cannot end in order.
    }
    over->set_value();
  });
  return started && finished.wait_for(limit) == std::future_status::ready;
}

/// Waits for all work that was started on *device*.
void finish_work_on(c10::Device device) {
  if (!device.is_cpu()) // The CPU runs nothing asynchronously.
    c10::impl::VirtualGuardImpl{device.type()}.synchronizeDevice(
      device.index());
}

} // namespace

c10::intrusive_ptr<c10d::Backend>
make_member(int rank, const char* problem,
            const std::function<c10::intrusive_ptr<c10d::Backend>()>& make) {
  try {
    return make();
  } catch (const train_error&) {
    throw;
  } catch (const std::exception& e) {
    throw train_error{{ec::rank_failed,
                       c10::str("rank ", rank, ": ", problem, ": ", e.what())}};
  }
}

void load_cuda(int rank) {
  if (!::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL))
    lacks(rank, std::string{"the CUDA part of LibTorch could not be loaded: "}
                  + ::dlerror());
  if (!at::hasCUDA())
    lacks(rank, "LibTorch finds no GPU on this host; or the program used CUDA "
                "before troupe::init, which must be the first line of main; or "
                "LibTorch was asked for a GPU before its CUDA part was loaded: "
                "call troupe::gpu_count() before the first seed or tensor of a "
                "program whose ranks are threads");
}

c10::intrusive_ptr<c10d::Backend>
make_nccl_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                int size, c10::Device device,
                std::chrono::milliseconds timeout) {
  return make_member(rank, "NCCL could not start", [&] {
    auto* make = nccl_library(rank);
    return c10::intrusive_ptr<c10d::Backend>::reclaim(
      make(store, rank, size, device, timeout));
  });
}

c10::intrusive_ptr<c10d::Backend>
start_group(train_context& context, std::chrono::milliseconds limit,
            std::function<c10::intrusive_ptr<c10d::Backend>()> start) {
  using outcome = first_outcome<c10::intrusive_ptr<c10d::Backend>>;
  auto shared = std::make_shared<outcome>();
  auto result = shared->future();
  rank_access{context}.link().on_abort([shared](const error& reason) {
    shared->fail(std::make_exception_ptr(train_error{reason}));
  });
  // The link outlives the thread: the start may ask its store.
  auto started = start_detached_thread(
    [shared, start = std::move(start),
     link = rank_access{context}.link().shared_from_this()] {
      try {
        shared->succeed(start());
      } catch (...) {
        shared->fail(std::current_exception());
      }
    });
  if (!started)
    throw train_error{
      {started.error().code,
       c10::str("rank ", context.rank(),
                ": the group did not start: ", started.error().message)}};
  if (result.wait_for(limit) != std::future_status::ready)
    shared->fail(std::make_exception_ptr(
      train_error{{ec::timeout, c10::str("rank ", context.rank(),
                                         ": the group did not start within ",
                                         duration_text(limit))}}));
  return result.get();
}

std::shared_ptr<void>
refuse_reports_after_abort(train_context& context,
                           c10::intrusive_ptr<c10d::Backend> member,
                           c10::Device device) {
  return rank_access{context}.before_report(
    [member = std::move(member), device, rank = context.rank(),
     activity = rank_access{context}.link().activity()] {
      {
        activity_scope waits{activity->at_device};
        finish_work_on(device);
      }
      if (member->getError() != c10d::ErrorType::SUCCESS)
        throw train_error{
          {ec::rank_failed,
           c10::str(
             "rank ", rank,
             ": NCCL aborted a collective, so what the loop computed since is "
             "not valid and cannot be reported")}};
    });
}

void abort_nccl_group(c10::intrusive_ptr<c10d::Backend> member) {
  // If no thread can be started, the attempt's own limits end the rank.
  (void) start_detached_thread([member = std::move(member)] {
    try {
      member->abort();
    } catch (...) {
      // The group is unusable either way; its data plane releases it.
    }
  });
}

std::chrono::milliseconds nccl_drain_limit() noexcept {
  return std::chrono::seconds{std::uncaught_exceptions() > 0 ? 1 : 30};
}

void close_nccl_group(c10::intrusive_ptr<c10d::Backend> member,
                      c10::Device device, std::chrono::milliseconds limit) {
  auto closed = finishes_within(limit, [member, device] {
    finish_work_on(device);
    member->shutdown();
  });
  if (!closed)
    (void) finishes_within(abort_limit, [member] { member->abort(); });
  group_reaper::dispose(std::move(member));
}

} // namespace troupe::internal

namespace troupe {

int gpu_count() {
  if (!::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) || !at::hasCUDA())
    return 0;
  return c10::impl::VirtualGuardImpl{at::kCUDA}.deviceCount();
}

} // namespace troupe
