#include "troupe/callbacks/callback_list.hpp"

#include <unistd.h>

#include <string>
#include <utility>

#include "troupe/runtime/process/forked_process.hpp"
#include "troupe/runtime/process/secrets.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// If name() throws, falls back to the class name.
std::string name_of(const user_callback& x) {
  try {
    return x.name();
  } catch (...) {
    return x.user_callback::name();
  }
}

} // namespace

void callback_watch::set(std::string who, std::string_view hook) {
  std::lock_guard guard{mutex_};
  who_ = std::move(who);
  hook_ = hook;
}

std::string callback_watch::text() const {
  std::lock_guard guard{mutex_};
  return who_.empty() ? who_ : who_ + " in " + std::string{hook_};
}

std::string callback_watch::who() const {
  std::lock_guard guard{mutex_};
  return who_;
}

callback_list::callback_list(
  std::vector<std::shared_ptr<user_callback>> callbacks, callback_errors policy,
  clock_function now)
  : policy_(policy), now_(std::move(now)) {
  for (auto& x : callbacks)
    if (x)
      callbacks_.push_back({x, name_of(*x)});
}

callback_done callback_list::before_run(const run_context& run) {
  return round("before_run", [&](user_callback& x) { x.before_run(run); });
}

callback_done
callback_list::after_report(const run_context& run,
                            const std::vector<metrics>& values,
                            const std::optional<checkpoint>& data) {
  return round("after_report",
               [&](user_callback& x) { x.after_report(run, values, data); });
}

callback_done
callback_list::after_exception(const run_context& run,
                               const std::map<int, rank_failure>& failures) {
  return round("after_exception",
               [&](user_callback& x) { x.after_exception(run, failures); });
}

callback_done callback_list::after_state_change(const run_context& run,
                                                run_state from, run_state to) {
  return round("after_state_change",
               [&](user_callback& x) { x.after_state_change(run, from, to); });
}

callback_done callback_list::after_group_start(const run_context& run) {
  return round("after_group_start",
               [&](user_callback& x) { x.after_group_start(run); });
}

callback_done callback_list::after_group_end(const run_context& run,
                                             const error& reason) {
  return round("after_group_end",
               [&](user_callback& x) { x.after_group_end(run, reason); });
}

callback_done callback_list::after_run(const run_context& run,
                                       const result& outcome) {
  return round("after_run",
               [&](user_callback& x) { x.after_run(run, outcome); });
}

callback_done
callback_list::round(std::string_view hook,
                     const std::function<void(user_callback&)>& call) {
  callback_done result;
  auto begin = now_();
  auto last = begin;
  for (std::size_t i = 0; i < callbacks_.size(); ++i) {
    auto& [callback, name] = callbacks_[i];
    auto who = concat("callback ", i + 1, " (", name, ')');
    error failure;
    auto process = ::getpid();
    try {
      watch_->set(who, hook);
      call(*callback);
    } catch (...) {
      failure = {ec::callback_failed,
                 cut_reason(redacted(concat(who, " threw in ", hook, ": ",
                                            text_of_current_exception())))};
    }
    if (::getpid() != process)
      leave_if_forked(process, concat(hook, " of ", who), failure);
    if (failure) {
      result.failures.push_back(std::move(failure));
      result.abort = policy_ == callback_errors::abort;
    }
    auto now = now_();
    result.times.push_back(
      {name, std::chrono::duration<double>(now - last).count()});
    last = now;
  }
  watch_->set({}, hook);
  result.seconds = std::chrono::duration<double>(last - begin).count();
  return result;
}

} // namespace troupe::internal
