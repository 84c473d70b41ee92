#include "troupe/trainers/inline_callbacks.hpp"

#include <condition_variable>
#include <mutex>
#include <thread>

#include "troupe/callbacks/console.hpp"
#include "troupe/runtime/run/callback_alarm.hpp"

namespace troupe {

// -- the thread

struct callback_thread::state {
  explicit state(callback_list x) : list(std::move(x)) {}

  void serve() {
    std::unique_lock lock{mutex};
    for (;;) {
      changed.wait(lock, [this] { return over || next; });
      if (over)
        return;
      auto what = std::exchange(next, nullptr);
      lock.unlock();
      auto outcome = what(list);
      what = nullptr;
      lock.lock();
      answer = std::move(outcome);
      changed.notify_all();
    }
  }

  callback_list list; // of the thread
  std::mutex mutex;   // guards what follows
  std::condition_variable changed;
  call next;
  std::optional<callback_outcome> answer;
  bool over = false;
  std::thread thread; // of the owner
};

callback_thread::callback_thread(callback_list list)
  : state_(std::make_shared<state>(std::move(list))) {
  state_->thread = std::thread{[mine = state_] { mine->serve(); }};
}

callback_thread::~callback_thread() {
  if (!state_)
    return;
  {
    std::lock_guard guard{state_->mutex};
    state_->over = true;
    state_->changed.notify_all();
  }
  state_->thread.join();
}

expected<callback_outcome>
callback_thread::run(call x, std::chrono::milliseconds timeout,
                     std::optional<std::chrono::milliseconds> limit,
                     const std::function<void(std::string)>& name) {
  using clock = std::chrono::steady_clock;
  callback_alarm alarm{timeout, limit};
  alarm.asked(clock::now());
  auto watch = state_->list.watch();
  auto text = [&](const char* words) {
    auto who = watch->text();
    return (who.empty() ? "the thread of the callbacks" : who) + words
           + std::to_string(alarm.waited(clock::now()).count() / 1000) + " s; ";
  };
  std::unique_lock lock{state_->mutex};
  state_->next = std::move(x);
  state_->changed.notify_all();
  for (;;) {
    auto is_back = [this] { return state_->answer.has_value(); };
    if (auto next = alarm.next_check(clock::now()))
      state_->changed.wait_for(lock, *next, is_back);
    else
      state_->changed.wait(lock, is_back);
    if (is_back())
      return *std::exchange(state_->answer, std::nullopt);
    switch (alarm.check(clock::now())) {
      case callback_alarm::verdict::wait:
        break;
      case callback_alarm::verdict::name:
        name(text(" has not come back for ") + "the run waits for it");
        break;
      case callback_alarm::verdict::give_up: {
        error reason{
          ec::callback_failed,
          text(" did not come back for ")
            + "the run continues without it and the callbacks beside "
              "it, whose thread is left behind"};
        state_->over = true;
        state_->thread.detach();
        lock.unlock();
        state_.reset();
        return tl::unexpected{std::move(reason)};
      }
    }
  }
}

// -- the callbacks

inline_callbacks::inline_callbacks(callback_list list,
                                   std::optional<told_reports> told,
                                   run_context context, run_store& store,
                                   const run_config& config)
  : watch_(list.watch()), told_(std::move(told)), context_(std::move(context)),
    store_(store), config_(config) {
  if (!list.empty())
    thread_.emplace(std::move(list));
}

void inline_callbacks::before_run() {
  has_begun_ = true;
  round([run = context_](callback_list& x) { return x.before_run(run); });
  if (!told_)
    return;
  auto attempt = context_.attempt;
  for (;;) {
    auto x = told_->next_untold();
    if (!x && !end_reason_)
      end_reason_ = x.error();
    if (!x || !*x)
      break;
    context_.attempt = (*x)->batch.attempt;
    after_report((*x)->batch.index, (*x)->batch.values, (*x)->data);
  }
  context_.attempt = attempt;
}

void inline_callbacks::after_report(std::uint64_t index,
                                    const std::vector<metrics>& values,
                                    const std::optional<checkpoint>& data) {
  if (!told_)
    return;
  context_.report_index = index;
  round([run = context_, values, data](callback_list& x) {
    return x.after_report(run, values, data);
  });
  std::vector<std::string> skipped;
  if (!left_.empty())
    skipped.push_back(left_);
  if (auto ok = told_->told(index, skipped); !ok && !end_reason_)
    end_reason_ = ok.error();
}

void inline_callbacks::after_exception(
  const std::map<int, rank_failure>& ranks) {
  round([run = context_, ranks](callback_list& x) {
    return x.after_exception(run, ranks);
  });
}

void inline_callbacks::after_run(const result& outcome) {
  if (!has_begun_)
    return;
  round([run = context_, outcome](callback_list& x) {
    return x.after_run(run, outcome);
  });
}

std::vector<std::string> inline_callbacks::skipped() const {
  return told_ ? told_->skipped() : std::vector<std::string>{};
}

void inline_callbacks::round(callback_thread::call call) {
  if (!thread_ || thread_->left_behind())
    return;
  auto done = thread_->run(std::move(call), config_.callback_timeout,
                           config_.callback_limit,
                           [this](const std::string& text) { note(text); });
  if (!done) {
    auto who = watch_->who();
    left_ = (who.empty() ? "a callback" : who) + " and those beside it";
    fail(done.error());
    if (config_.callback_errors == callback_errors::abort && !end_reason_)
      end_reason_ = done.error();
    return;
  }
  for (auto& problem : done->errors)
    fail(problem);
  if (done->abort && !end_reason_)
    end_reason_ = done->errors.front();
}

void inline_callbacks::note(const std::string& text) {
  if (!config_.quiet)
    write_console(2, text + '\n');
}

void inline_callbacks::show_store_events() {
  for (auto& event : store_.take_events())
    note("troupe: " + to_string(event));
}

void inline_callbacks::fail(const error& problem) {
  note(problem.message);
  // A journal that takes no line ends the run at the next report.
  (void) store_.append_event("callback_failed", context_.attempt,
                             {{"reason", problem.message}});
}

} // namespace troupe
