#include "troupe/trainers/sweep/trial_thread.hpp"

#include "troupe/runtime/process/threads.hpp"
#include "troupe/trainers/run_parts.hpp"

namespace troupe::internal {

expected<std::unique_ptr<trial_thread>>
trial_thread::start(trial x, run_request request, surroundings around) {
  std::unique_ptr<trial_thread> result{
    new trial_thread{std::move(x), std::move(around)}};
  TROUPE_TRY(result->thread_, start_user_thread([self = result.get(),
                                                 request = std::move(request)] {
               self->serve(request);
             }));
  return result;
}

trial_thread::~trial_thread() {
  ask_to_end(interrupt::stop);
  if (thread_.joinable())
    thread_.join();
}

void trial_thread::serve(const run_request& request) noexcept {
  expected<result> outcome;
  try {
    outcome = run(request);
  } catch (...) {
    outcome = tl::unexpected{caught("the trial could not continue")};
  }
  {
    std::lock_guard guard{mutex_};
    outcome_ = std::move(outcome);
  }
  around_.ended();
}

expected<result> trial_thread::run(const run_request& request) {
  TROUPE_TRY(auto prepared, prepare(request));
  run_surroundings around;
  around.given_up = [this] {
    std::lock_guard guard{mutex_};
    return was_asked();
  };
  around.end_of_given_up = [this](error reason) {
    auto end = failed_result(std::move(reason));
    std::lock_guard guard{mutex_};
    end.status = status_after(orders_.last());
    return end;
  };
  around.is_trial = true;
  around.enough = around_.enough;
  TROUPE_TRY(
    auto started,
    run_access::start(std::move(prepared), *around_.system, std::move(around)));
  auto mine = std::make_shared<run_handle>(std::move(started));
  {
    std::lock_guard guard{mutex_};
    handle_ = mine;
    pass_on(orders_.last());
  }
  signals_in_time in_time;
  auto outcome_is_fixed = [&] { in_time.outcome_is_fixed(around_.signals()); };
  monitor_listener listener{run_access{*mine}.monitor(), [&](run_state state) {
                              if (state >= run_state::shutting_down)
                                outcome_is_fixed();
                            }};
  return mine->wait([&] {
    outcome_is_fixed();
    return in_time.is_hurried(around_.signals().count);
  });
}

std::shared_ptr<run_handle> trial_thread::handle() const {
  std::lock_guard guard{mutex_};
  return handle_;
}

double trial_thread::seconds() const {
  std::chrono::duration<double> now = std::chrono::steady_clock::now() - begin_;
  return content_.seconds + now.count();
}

trial trial_thread::snapshot() const {
  auto result = content_;
  result.seconds = seconds();
  if (auto run = handle()) {
    auto now = run->status();
    result.reports = now.reports;
    result.metrics = std::move(now.last_metrics);
  }
  return result;
}

std::vector<std::string> trial_thread::take_notes() {
  auto run = handle();
  return run ? run_access{*run}.monitor().take_notes()
             : std::vector<std::string>{};
}

void trial_thread::ask_to_end(interrupt how) {
  std::lock_guard guard{mutex_};
  if (!orders_.is_more(how))
    return;
  orders_.passed_on(how);
  pass_on(how);
}

void trial_thread::pass_on(interrupt how) {
  if (handle_ && how == interrupt::stop)
    handle_->abort();
  else if (handle_ && how == interrupt::preempt)
    handle_->preempt();
}

bool trial_thread::has_ended() const {
  std::lock_guard guard{mutex_};
  return outcome_.has_value();
}

expected<std::optional<trial>> trial_thread::take_end() {
  thread_.join();
  auto& outcome = *outcome_;
  if (!outcome) {
    if (was_asked() && outcome.error().code == ec::stopped)
      return std::nullopt;
    return failure(outcome.error().code,
                   content_.name + ": " + outcome.error().message);
  }
  // Neither the params nor the program are to blame.
  if (outcome->error && outcome->error->code == ec::storage)
    return failure(ec::storage, content_.name + ": " + outcome->error->message);
  auto done = content_;
  done.status = outcome->status;
  done.metrics = outcome->metrics;
  done.seconds = seconds();
  done.reports = handle_->status().reports;
  done.reason = outcome->error ? outcome->error->message : outcome->stop_reason;
  auto is_over = done.status == run_status_kind::finished
                 || done.status == run_status_kind::errored;
  if (!is_over && was_asked())
    return std::nullopt;
  return done;
}

int trial_thread::threads_left() const {
  auto run = handle();
  return run ? run->threads_left_behind() : 0;
}

} // namespace troupe::internal
