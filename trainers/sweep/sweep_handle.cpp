#include "troupe/trainers/sweep/sweep_handle.hpp"

#include <latch>
#include <thread>
#include <utility>

#include "troupe/actors/protocol/register_messages.hpp"
#include "troupe/runtime/process/threads.hpp"
#include "troupe/trainers/sweep/sweep_plan.hpp"
#include "troupe/trainers/sweep/sweep_run.hpp"

namespace troupe {

using namespace internal;

namespace internal {

/// All that lives as long as the handle.
struct sweep_parts {
  sweep_parts(const run_request& what, const search_space& where,
              const sweep_options& how)
    : request(without_console(what)), space(where), options(how) {
    outcome.order = options.order;
  }

  /// A service prints what it likes.
  static run_request without_console(run_request x) {
    x.run.quiet = true;
    return x;
  }

  ~sweep_parts() {
    run.request_end(interrupt::stop, "the handle of the sweep was destroyed");
    if (thread.joinable())
      thread.join();
  }

  /// The threads of trials inherit its signal mask.
  expected<void> start_thread(caf::actor_system& system) {
    TROUPE_TRY(thread, start_user_thread([this, &system] {
                 run.run(system, nullptr);
                 over.count_down();
               }));
    return {};
  }

  run_request request;
  search_space space;
  sweep_options options;
  sweep_plan plan{request, space, options};
  sweep_result outcome; // the thread's until it is over
  sweep_run run{plan, outcome};
  std::latch over{1};
  std::thread thread;
};

} // namespace internal

expected<sweep_handle> sweep_handle::start(const run_request& request,
                                           const search_space& space,
                                           const sweep_options& options,
                                           caf::actor_system& system) {
  try {
    register_messages();
    owned_ptr<sweep_parts> parts{new sweep_parts{request, space, options}};
    TROUPE_TRY_VOID(parts->plan.check());
    TROUPE_TRY_VOID(parts->run.open());
    TROUPE_TRY_VOID(parts->start_thread(system));
    return sweep_handle{std::move(parts)};
  } catch (...) {
    return tl::unexpected{caught("the sweep could not start")};
  }
}

sweep_handle::sweep_handle(owned_ptr<sweep_parts> x) : parts_(std::move(x)) {}

sweep_handle::sweep_handle(sweep_handle&&) noexcept = default;

sweep_handle& sweep_handle::operator=(sweep_handle&&) noexcept = default;

sweep_handle::~sweep_handle() = default;

sweep_status sweep_handle::status() const {
  if (!is_here()) // A thread that is not here may hold the lock.
    return {};
  return parts_->run.status();
}

void sweep_handle::follow(sweep_observer_actor who) {
  if (is_here())
    parts_->run.follow(std::move(who));
}

void sweep_handle::abort(std::string reason) {
  if (is_here())
    parts_->run.request_end(interrupt::stop, std::move(reason));
}

void sweep_handle::preempt(std::string reason) {
  if (is_here())
    parts_->run.request_end(interrupt::preempt, std::move(reason));
}

sweep_result sweep_handle::wait() noexcept {
  if (!is_here()) {
    sweep_result outcome;
    outcome.error = error{ec::invalid_argument,
                          "only the process that started a sweep can wait for "
                          "it, not one forked from it"};
    return outcome;
  }
  parts_->over.wait();
  return parts_->outcome;
}

int sweep_handle::threads_left_behind() const {
  return parts_->over.try_wait() ? parts_->run.threads_left() : 0;
}

} // namespace troupe
