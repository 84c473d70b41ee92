#include "troupe/runtime/values/run_control.hpp"

#include <mutex>
#include <utility>

namespace troupe {

struct run_control::shared {
  std::mutex mutex;
  receiver to;
};

run_control::run_control(receiver f) : shared_(std::make_shared<shared>()) {
  shared_->to = std::move(f);
}

void run_control::finish(std::string reason) const {
  give({finish_run{std::move(reason)}});
}

void run_control::preempt(
  std::string reason, std::optional<std::chrono::milliseconds> grace) const {
  give({preempt_run{std::move(reason), grace ? grace->count() : -1}});
}

void run_control::abort(std::string reason) const {
  give({abort_run{std::move(reason)}});
}

void run_control::resize_callback_queue(std::uint64_t places) const {
  give({troupe::resize_callback_queue{places}});
}

void run_control::give(run_order x) const {
  if (!shared_)
    return;
  std::lock_guard guard{shared_->mutex};
  if (shared_->to)
    shared_->to(std::move(x));
}

namespace internal {

void order_receiver::connect(const run_control& x, run_control::receiver f) {
  if (!x.shared_)
    return;
  std::lock_guard guard{x.shared_->mutex};
  x.shared_->to = std::move(f);
}

} // namespace internal

} // namespace troupe
