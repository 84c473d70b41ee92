#include "troupe/trainers/sweep/sweep_run.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/protocol/type_ids.hpp"
#include "troupe/callbacks/report_page/sweep_page.hpp"
#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/store/journal_reader.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// How often the table is drawn.
constexpr int redraw_ms = 200;
/// How often the driver looks for a request of `troupe stop`.
constexpr auto request_interval = std::chrono::seconds{1};

/// Empty: unknown.
bool is_another(const std::string& config, const std::string& now) {
  return !config.empty() && !now.empty() && config != now;
}

} // namespace

sweep_run::sweep_run(const sweep_plan& plan, sweep_result& outcome)
  : plan_(plan), outcome_(outcome),
    console_(plan.is_quiet() ? console_style::quiet
                             : console_style::automatic) {}

sweep_run::~sweep_run() {
  if (judge_)
    judge_->retire();
}

expected<void> sweep_run::open() {
  TROUPE_TRY_VOID(open_standard_descriptors());
  TROUPE_TRY(store_,
             sweep_store::open(plan_.storage_path(), plan_.description()));
  outcome_.path = store_->path();
  at_once_ = static_cast<std::size_t>(plan_.at_once());
  auto& options = plan_.options();
  std::optional<halving> rungs;
  if (options.halving)
    rungs.emplace(*options.halving, options.order);
  judge_ =
    std::make_shared<trial_judge>(options.metric, std::move(rungs), *store_);
  if (auto others = judge_->restore(store_->history().comparisons); others > 0)
    console_.note(concat(store_->path().string(),
                         ": halving has other options than before; ",
                         counted(others, "comparison"),
                         others == 1 ? " does" : " do", " not count"));
  ledger_.emplace(outcome_.trials, *store_, plan_.chooser(), plan_.rules());
  TROUPE_TRY_VOID(ledger_->restore());
  if (auto& damaged = store_->history().damaged; !damaged.empty())
    console_.note(concat("the sweep continues without ",
                         counted(damaged.size(), "damaged line"),
                         " of its journal: ", damaged.front().message));
  if (auto ended = ledger_->ended(), resumed = ledger_->left_to_resume();
      !outcome_.trials.empty())
    console_.note(concat(store_->path().string(), ": ", counted(ended, "trial"),
                         ended == 1 ? " has ended, " : " have ended, ", resumed,
                         resumed == 1 ? " is resumed" : " are resumed"));
  if (auto& last = store_->history().start;
      last && is_another(last->config, plan_.start().config))
    console_.note(concat(store_->path().string(),
                         ": another config of the loop than in the start "
                         "before; trials that have ended keep theirs"));
  remember(look());
  return {};
}

void sweep_run::run(caf::actor_system& system,
                    interrupt_watch* signals) noexcept {
  system_ = &system;
  signals_ = signals;
  try {
    auto begun = store_->start(plan_.start());
    if (begun)
      run_all();
    else
      fail(begun.error());
  } catch (...) {
    fail(caught("the sweep could not continue"));
  }
  // The system goes after the runs.
  ask_to_end(interrupt::stop);
  active_.clear();
  outcome_.stop_requested = by_signal() != interrupt::none;
  note_end_of_start();
  if (signals_)
    signals_->answer(by_signal());
  give_up_folder();
  tell_end();
}

void sweep_run::note_end_of_start() noexcept {
  try {
    remember(look());
    sweep_end x;
    if (outcome_.error) {
      x.reason = outcome_.error->message;
      x.status = status_after(asked());
    }
    if (auto ok = store_->finish(std::move(x)); !ok)
      fail(ok.error());
    if (auto ok = plan_.makes_page() ? write_sweep_page(store_->path())
                                     : expected<void>{};
        !ok)
      console_.note("there is no page of the sweep: " + ok.error().message);
  } catch (...) {
    fail(caught("the sweep could not note its end"));
  }
}

void sweep_run::run_all() {
  for (;;) {
    end_trials();
    heed_requests();
    if (auto ok = begin_trials(); !ok)
      fail(ok.error());
    if (active_.empty())
      break;
    show();
    wait();
  }
  if (auto problem = judge_->problem())
    fail(std::move(problem));
  if (auto reason = ledger_->reason_to_end())
    fail(std::move(*reason));
  console_.note(totals_text(look()));
}

// A request that cannot be read is looked for again.
void sweep_run::heed_requests() {
  if (auto now = clock_type::now(); now >= next_look_) {
    next_look_ = now + request_interval;
    auto found = store_->take_end_request();
    if (found && *found)
      request_end((*found)->how == end_kind::abort ? interrupt::stop
                                                   : interrupt::preempt,
                  "the sweep was stopped by troupe stop");
  }
  if (asked() == interrupt::none)
    return;
  ask_to_end(asked());
  fail(why_asked());
}

interrupt sweep_run::by_signal() const {
  return signals_ ? signals_->asked() : interrupt::none;
}

interrupt sweep_run::asked() const {
  std::lock_guard guard{mutex_};
  return std::max(by_signal(), requested_);
}

error sweep_run::why_asked() const {
  std::lock_guard guard{mutex_};
  auto how = by_signal();
  auto why = how == interrupt::none
               ? why_requested_
               : concat("the sweep was ",
                        how == interrupt::stop ? "stopped" : "preempted",
                        " by ", signal_text(signals_->asking_signal()));
  return {ec::stopped,
          why
            + (plan_.has_name()
                 ? "; start it again to resume it"
                 : "; the next sweep with run.name = \""
                     + store_->description().name + "\" resumes it")};
}

void sweep_run::request_end(interrupt how, std::string why) {
  {
    std::lock_guard guard{mutex_};
    if (how <= requested_)
      return;
    requested_ = how;
    why_requested_ = std::move(why);
  }
  wake_.notify();
}

// -- beginning trials

expected<void> sweep_run::begin_trials() {
  while (!outcome_.error && !ledger_->is_hopeless()
         && active_.size() < at_once_) {
    TROUPE_TRY(auto has_begun, begin_next());
    if (!has_begun)
      return {};
  }
  return {};
}

expected<bool> sweep_run::begin_next() {
  if (auto begun = ledger_->next_begun())
    return resume(std::move(*begun));
  TROUPE_TRY(auto x, ledger_->next_new(plan_.space()));
  if (!x)
    return false;
  TROUPE_TRY_VOID(ledger_->begin(*x));
  return begin_or_refuse(std::move(*x));
}

expected<bool> sweep_run::begin_or_refuse(trial x) {
  auto loop = plan_.loop_for(x);
  if (!loop) { // The others of the space may fit.
    x.status = run_status_kind::errored;
    x.reason = std::move(loop.error().message);
    TROUPE_TRY_VOID(note_end(std::move(x)));
    return true;
  }
  TROUPE_TRY(auto request, plan_.request_for(x, std::move(*loop),
                                             store_->path(), with_next()));
  TROUPE_TRY_VOID(begin(std::move(x), std::move(request)));
  return true;
}

int sweep_run::with_next() const {
  auto result = at_once_;
  if (auto all = plan_.trials()) {
    auto left = std::max(*all, outcome_.trials.size()) - ledger_->ended();
    result = std::min(result, left);
  }
  return static_cast<int>(result);
}

expected<bool> sweep_run::resume(trial x) {
  auto path = store_->path() / x.name;
  // Without a journal, no driver has come so far.
  x.seconds = read_driven_seconds(path / run_layout::journal).value_or(0);
  // Its driver may have died between its end and the line about that.
  auto before = result::from_path(path);
  if (before && before->status == run_status_kind::finished) {
    x.status = before->status;
    x.metrics = before->metrics;
    x.reason = before->stop_reason;
    if (auto rows = before->metrics_history())
      x.reports = rows->size();
    TROUPE_TRY_VOID(note_end(std::move(x)));
    return true;
  }
  if (before && !before->checkpoint && plan_.options().halving) {
    if (auto rows = before->metrics_history(); rows && !rows->empty())
      console_.note(concat(x.name,
                           " trains from the beginning, without a "
                           "checkpoint; halving counts its ",
                           counted(rows->size(), "earlier report"), ", too"));
  }
  return begin_or_refuse(std::move(x));
}

expected<void> sweep_run::begin(trial x, run_request request) {
  console_.log(trial_text(x, plan_.options().metric));
  trial_thread::surroundings around;
  around.system = system_;
  around.enough = [judge = judge_, index = x.index](const report_batch& batch) {
    return judge->judge(index, batch);
  };
  around.signals = [this] {
    return signals_ ? signals_seen::by(*signals_) : signals_seen{};
  };
  around.ended = [this] { wake_.notify(); };
  TROUPE_TRY(auto started, trial_thread::start(std::move(x), std::move(request),
                                               std::move(around)));
  active_.push_back(std::move(started));
  return {};
}

// -- ending trials

void sweep_run::end_trials() {
  for (std::size_t i = 0; i < active_.size();) {
    if (!active_[i]->has_ended()) {
      ++i;
      continue;
    }
    auto x = std::move(active_[i]);
    active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
    if (auto ok = end(*x); !ok)
      fail(ok.error());
  }
}

expected<void> sweep_run::end(trial_thread& x) {
  auto done = x.take_end();
  threads_left_ += x.threads_left();
  show_notes(x);
  if (!done)
    return tl::unexpected{done.error()};
  return *done ? note_end(std::move(**done)) : expected<void>{};
}

expected<void> sweep_run::note_end(trial x) {
  console_.note(trial_text(x, plan_.options().metric));
  auto index = x.index;
  auto ok = ledger_->end(std::move(x));
  auto& now = outcome_.trials.at(index);
  if (now.status == run_status_kind::running)
    return ok; // The end could not be stored.
  std::lock_guard guard{mutex_};
  for (auto& who : followers_)
    send_anonymous(who, trial_ended{store_->path().string(), now});
  return ok;
}

void sweep_run::ask_to_end(interrupt how) {
  if (!orders_.is_more(how))
    return;
  orders_.passed_on(how);
  for (auto& x : active_)
    x->ask_to_end(how);
}

void sweep_run::fail(error reason) {
  if (!outcome_.error)
    outcome_.error = std::move(reason);
}

void sweep_run::give_up_folder() noexcept {
  judge_->retire();
  ledger_.reset();
  store_.reset();
}

// -- those that follow the sweep

void sweep_run::follow(sweep_observer_actor who) {
  std::lock_guard guard{mutex_};
  if (is_over_)
    send_anonymous(who, sweep_ended{outcome_});
  else
    followers_.push_back(std::move(who));
}

void sweep_run::tell_end() noexcept {
  std::lock_guard guard{mutex_};
  is_over_ = true;
  try {
    for (auto& who : followers_)
      send_anonymous(who, sweep_ended{outcome_});
  } catch (...) { // No memory for the message: `wait` has the result.
  }
  followers_.clear();
}

void sweep_run::remember(sweep_status x) {
  std::lock_guard guard{mutex_};
  seen_ = std::move(x);
}

sweep_status sweep_run::status() const {
  std::lock_guard guard{mutex_};
  return seen_;
}

// -- waiting, and what is shown

void sweep_run::wait() {
  // A signal that was heeded stays readable.
  auto signal_fd =
    signals_ && orders_.last() == interrupt::none ? signals_->fd() : -1;
  pollfd sources[] = {{wake_.fd(), POLLIN, 0}, {signal_fd, POLLIN, 0}};
  ::poll(sources, 2, redraw_ms);
  wake_.clear();
}

void sweep_run::show() {
  for (auto& x : active_)
    show_notes(*x);
  auto now = look();
  if (console_.style() == console_style::live)
    console_.update(now);
  remember(std::move(now));
}

void sweep_run::show_notes(trial_thread& x) {
  for (auto& line : x.take_notes())
    if (!line.starts_with("the run ends: ")) // `trial_text` says so, too.
      console_.whole_note(x.content().name + ": " + line);
}

sweep_status sweep_run::look() const {
  sweep_status result;
  auto& options = plan_.options();
  result.metric = options.metric;
  for (auto& x : active_)
    result.running.push_back(x->snapshot());
  std::ranges::sort(result.running, {}, &trial::index);
  result.ended = ledger_->ended();
  result.failed = ledger_->failed();
  if (options.trials) // An earlier start may have begun more.
    result.trials = std::max(static_cast<std::size_t>(*options.trials),
                             outcome_.trials.size());
  if (auto best = best_of(outcome_.trials, options.order))
    result.best = *best;
  result.elapsed_s =
    std::chrono::duration<double>{clock_type::now() - begin_}.count();
  return result;
}

} // namespace troupe::internal
