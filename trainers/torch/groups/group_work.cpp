#include "troupe/trainers/torch/groups/group_work.hpp"

#include <algorithm>
#include <chrono>

#include <c10/util/StringUtil.h>
#include <pthread.h>

#include "troupe/trainers/train_context.hpp"

namespace troupe::internal {

namespace {

c10::intrusive_ptr<c10::ivalue::Future>
make_future(const std::vector<std::vector<at::Tensor>>& outputs) {
  auto list = c10::ListType::create(c10::TensorType::get());
  std::vector<c10::Device> devices; // Ones that the future orders streams on.
  for (auto& tensors : outputs)
    for (auto& tensor : tensors)
      if (tensor.is_cuda()
          && std::find(devices.begin(), devices.end(), tensor.device())
               == devices.end())
        devices.push_back(tensor.device());
  return c10::make_intrusive<c10::ivalue::Future>(
    outputs.size() > 1 ? c10::TypePtr{c10::ListType::create(list)}
                       : c10::TypePtr{list},
    std::move(devices));
}

} // namespace

std::uint64_t shown_calls::add() noexcept {
  auto shown = activity_.lock();
  if (!shown)
    return 0;
  if (on_loops_thread())
    return shown->called.fetch_add(1) + 1;
  shown->uncounted.store(1);
  return 0;
}

void shown_calls::lose_count() noexcept {
  if (auto shown = activity_.lock())
    shown->uncounted.store(1);
}

void shown_calls::fail(collective_failure how) noexcept {
  if (auto shown = activity_.lock())
    shown->fail_collective(how);
}

std::shared_ptr<void> shown_calls::wait_for(std::uint64_t number) {
  auto shown = on_loops_thread() ? activity_.lock() : nullptr;
  if (!shown)
    return nullptr;
  shown->awaited.store(number > 0 ? number : shown->called.load());
  return {shown.get(), [activity = activity_](rank_activity*) {
            if (auto x = activity.lock())
              x->awaited.store(0);
          }};
}

bool needs_all_ranks(c10d::OpType type) noexcept {
  switch (type) {
    case c10d::OpType::ALLREDUCE:
    case c10d::OpType::_ALLREDUCE_SPARSE:
    case c10d::OpType::ALLREDUCE_COALESCED:
    case c10d::OpType::ALLGATHER:
    case c10d::OpType::_ALLGATHER_BASE:
    case c10d::OpType::ALLGATHER_COALESCED:
    case c10d::OpType::REDUCE_SCATTER:
    case c10d::OpType::_REDUCE_SCATTER_BASE:
    case c10d::OpType::BARRIER:
      return true;
    default:
      return false;
  }
}

group_work::group_work(int rank, c10d::OpType type,
                       std::vector<std::vector<at::Tensor>> outputs,
                       std::uint64_t sequence,
                       std::chrono::milliseconds timeout,
                       std::shared_ptr<shown_calls> shown, bool needs_all)
  : c10d::Work(rank, type), outputs_(std::move(outputs)), sequence_(sequence),
    timeout_(timeout), future_(make_future(outputs_)), shown_(std::move(shown)),
    call_(shown_->add()), needs_all_(needs_all) {}

/// Waiting would never end, because of *why*.
void group_work::refuse_wait(std::string_view why) const {
  throw train_error{
    {ec::invalid_argument, c10::str("rank ", rank_, ": ", why)}};
}

bool group_work::wait(std::chrono::milliseconds timeout) {
  if (!owner_.is_here() && !isCompleted())
    refuse_wait("a process that the train loop forked waits for a collective "
                "that the loop called: wait in the loop");
  if (thread_ == std::this_thread::get_id()) {
    if (!done_)
      refuse_wait("a callback of a collective's future waits for another "
                  "collective of the same group, which runs on the same "
                  "thread: wait where the collectives are called, such as in "
                  "runHook() of a comm_hook");
    future_->waitAndThrow(); // is complete, also in a callback of its own
    return true;
  }
  // With an explicit timeout the loop may continue without it.
  auto here =
    needs_all_ && call_ > 0 && timeout == kNoTimeout && owner_.is_here()
      ? shown_->wait_for(call_)
      : nullptr;
  return Work::wait(timeout);
}

bool group_work::succeed() {
  if (done_.exchange(true))
    return false;
  if (outputs_.size() > 1)
    future_->markCompleted(c10::IValue{outputs_});
  else if (outputs_.size() == 1)
    future_->markCompleted(c10::IValue{outputs_.front()});
  else
    future_->markCompleted(c10::IValue{std::vector<at::Tensor>{}});
  finish();
  return true;
}

bool group_work::fail(std::exception_ptr reason, collective_failure how) {
  if (done_.exchange(true))
    return false;
  shown_->fail(how); // Before another thread can see the result.
  future_->setError(reason);
  finish(std::move(reason));
  return true;
}

std::vector<at::Tensor> group_work::result() {
  std::vector<at::Tensor> all;
  for (auto& tensors : outputs_)
    all.insert(all.end(), tensors.begin(), tensors.end());
  return all;
}

c10::intrusive_ptr<c10::ivalue::Future> group_work::getFuture() {
  return future_;
}

ordered_worker::ordered_worker()
  : thread_([shared = queue_] { run(*shared); }) {}

bool ordered_worker::add(std::function<void()> task) {
  {
    std::lock_guard guard{queue_->mutex};
    if (queue_->stopping)
      return false;
    queue_->tasks.push_back(std::move(task));
  }
  queue_->changed.notify_all();
  return true;
}

void ordered_worker::join(const std::function<void()>& poke) {
  if (!thread_.joinable())
    return;
  if (thread_.get_id() == std::this_thread::get_id())
    return finish_here(poke);
  std::unique_lock guard{queue_->mutex};
  queue_->stopping = true;
  queue_->changed.notify_all();
  while (!queue_->done) {
    if (poke)
      poke();
    queue_->changed.wait_for(guard, std::chrono::milliseconds{5});
  }
  guard.unlock();
  thread_.join();
}

void ordered_worker::finish_here(const std::function<void()>& poke) {
  if (poke)
    poke();
  std::unique_lock guard{queue_->mutex};
  queue_->stopping = true;
  while (!queue_->tasks.empty()) {
    auto task = std::move(queue_->tasks.front());
    queue_->tasks.pop_front();
    guard.unlock();
    task();
    task = nullptr;
    guard.lock();
  }
  thread_.detach();
}

void ordered_worker::run(queue& x) {
  ::pthread_setname_np(::pthread_self(), "troupe-group");
  std::unique_lock guard{x.mutex};
  for (;;) {
    x.changed.wait(guard, [&x] { return x.stopping || !x.tasks.empty(); });
    if (x.tasks.empty())
      break;
    auto task = std::move(x.tasks.front());
    x.tasks.pop_front();
    guard.unlock();
    task();
    task = nullptr; // Destroys its captures before the lock is taken again.
    guard.lock();
  }
  x.done = true;
  x.changed.notify_all();
}

} // namespace troupe::internal
