#include "troupe/trainers/run_handle.hpp"

#include <algorithm>
#include <iterator>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/protocol/type_ids.hpp"
#include "troupe/runtime/store/result.hpp"
#include "troupe/trainers/run_parts.hpp"

namespace troupe {

using namespace internal;

run_handle::run_handle(std::unique_ptr<run_parts> x) : parts_(std::move(x)) {}

run_handle::run_handle(run_handle&&) noexcept = default;

run_handle& run_handle::operator=(run_handle&& other) noexcept {
  if (this == &other)
    return *this;
  run_handle before{std::move(*this)}; // ends its run when it goes
  parts_ = std::move(other.parts_);
  owner_ = other.owner_;
  return *this;
}

run_handle::~run_handle() {
  if (!parts_)
    return;
  if (!owner_.is_here()) {
    (void) parts_.release(); // The run's threads are not here.
    return;
  }
  abort();
  parts_->await_end({});
}

run_status run_handle::status() const {
  if (!owner_.is_here()) // A thread that is not here may hold the lock.
    return {.state = run_state::errored};
  return parts_->monitor->status();
}

void run_handle::finish(std::string reason) {
  if (!owner_.is_here())
    return; // The actors' threads are not here.
  send_anonymous(parts_->driver, finish_run{std::move(reason)});
}

void run_handle::preempt(std::string reason,
                         std::optional<std::chrono::milliseconds> grace) {
  if (!owner_.is_here())
    return;
  send_anonymous(parts_->driver,
                 preempt_run{std::move(reason), grace ? grace->count() : -1});
}

void run_handle::abort(std::string reason) {
  if (!owner_.is_here())
    return;
  send_anonymous(parts_->driver, abort_run{std::move(reason)});
}

result run_handle::wait(const std::function<bool()>& hurried) noexcept {
  if (!owner_.is_here()) {
    result outcome;
    outcome.status = run_status_kind::errored;
    outcome.error = make_run_error(
      {ec::invalid_argument, "only the process that started a run can wait for "
                             "it, not one forked from it"});
    return outcome;
  }
  parts_->await_end(hurried);
  auto outcome = parts_->monitor->wait().unpacked_if_possible();
  std::lock_guard guard{parts_->waiting};
  try {
    std::ranges::copy(parts_->unsent, std::back_inserter(outcome.unsent));
  } catch (...) { // No memory: what matters is the outcome.
  }
  return outcome;
}

expected<void> run_handle::when_closed(run_closed_actor who) {
  if (!owner_.is_here())
    return failure(ec::invalid_argument,
                   "the run does not exist in this process, which was forked "
                   "from the one that started it");
  auto& store = *parts_->store;
  return parts_->closing.tell(std::move(who),
                              {store.description().id, store.path()},
                              [parts = parts_.get()] { parts->await_end({}); });
}

run_control_actor run_handle::control() const {
  return parts_->driver;
}

int run_handle::threads_left_behind() const {
  return (parts_->threads ? parts_->threads->running() : 0)
         + (*parts_->callbacks_left_behind ? 1 : 0);
}

} // namespace troupe
