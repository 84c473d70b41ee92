#include "troupe/trainers/sweep/sweep.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>
#include <thread>

#include <caf/actor_system.hpp>

#include "troupe/callbacks/sweep_console.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/interrupt_watch.hpp"
#include "troupe/runtime/sweep/sweep_store.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/trainers/run_handle.hpp"
#include "troupe/trainers/run_home.hpp"

namespace troupe {

using namespace internal;

namespace {

using clock_type = std::chrono::steady_clock;

/// How often the table is drawn.
constexpr int redraw_ms = 200;

double seconds_since(clock_type::time_point begin) {
  return std::chrono::duration<double>{clock_type::now() - begin}.count();
}

std::string text_of(const metric_value& x) {
  if (auto text = std::get_if<std::string>(&x.variant()))
    return *text;
  std::string result;
  append_scalar(
    result, x.variant(), [&](double number) { append_plain(result, number); },
    [](std::string_view) {});
  return result;
}

field_texts texts_of(const metrics& params) {
  field_texts result;
  for (auto& [name, value] : params)
    result.emplace_back(name, text_of(value));
  return result;
}

/// How many trials of *x* fit onto this host at once.
int concurrency(const scaling_config& x) {
  auto host = local_resources();
  auto ranks = world_size_of(x);
  auto each = x.resources_per_worker.cpus.value_or(1);
  auto result = each > 0 ? std::floor(host.cpus / (each * ranks)) : host.cpus;
  // The GPUs of a run are the first ones.
  if (!gpus_of(x, 0).empty())
    result = 1;
  return std::max(static_cast<int>(result), 1);
}

expected<void> check_options(const sweep_options& x, const searcher& chooser) {
  auto refuse = [](std::string what) {
    return failure(ec::invalid_config, "sweep_options::" + std::move(what));
  };
  if (x.metric.empty())
    return refuse("metric is empty: name what trials are compared by");
  if (x.trials && *x.trials < 1)
    return refuse("trials must be >= 1 or unset, got 0");
  if (!x.trials && !chooser.is_finite())
    return refuse("trials is unset, but the searcher (" + chooser.name()
                  + ") never ends by itself");
  if (x.max_concurrent && *x.max_concurrent < 1)
    return refuse(
      concat("max_concurrent must be >= 1 or unset, got ", *x.max_concurrent));
  if (!x.halving)
    return {};
  return internal::validate(*x.halving);
}

/// Refuses a space whose values do not fit into the fields of the loop's
/// config.
expected<void> check_fields(const search_space& space, const train_loop& loop) {
  if (!loop.changed)
    return failure(ec::invalid_config,
                   "the config of the train loop has no named fields for the "
                   "params of a sweep: add TROUPE_FIELDS to it");
  for (auto& param : space)
    for (auto& value : grid_values(param.range, 2))
      if (auto ok = loop.changed({{param.name, text_of(value)}}, false); !ok)
        return failure(ec::invalid_config,
                       "the param '" + param.name
                         + "' of the sweep: " + ok.error().message);
  return {};
}

/// Refuses what cannot serve several runs at once.
expected<void> check_sharing(const run_request& x, int at_once) {
  if (x.scaling.agents > 0)
    return failure(ec::invalid_config,
                   "the trials of a sweep run on this host: scaling.agents "
                   "must be 0");
  auto is_shared = !x.run.callbacks.empty() || !x.run.trackers.empty();
  if (is_shared && at_once > 1)
    return failure(
      ec::invalid_config,
      concat("a callback or tracker serves one run at a time, but up to ",
             at_once,
             " trials run at once: give each its own with "
             "sweep_options::prepare, or set max_concurrent to 1"));
  return {};
}

/// A trial under way.
struct active_trial {
  trial content;
  clock_type::time_point begin = clock_type::now();
  std::thread thread;
  // -- guarded by the mutex of the sweep
  std::shared_ptr<run_handle> run; // unset: not started yet
  std::optional<expected<result>> outcome;
};

/// What the trials' comparisons need; outlives the sweep in runs that hang.
struct comparer {
  std::mutex mutex;
  std::optional<halving> rungs;
  std::string metric;
  sweep_store* store = nullptr;
  error problem; // of the store

  std::optional<std::string> judge(std::size_t index, const report_batch& x) {
    if (x.values.empty())
      return std::nullopt;
    auto value = x.values.front().find_number(metric);
    std::lock_guard guard{mutex};
    if (!rungs || !value || !store)
      return std::nullopt;
    auto entry = rungs->judge(index, x.index + 1, *value);
    if (!entry)
      return std::nullopt;
    if (auto ok = store->compare({metric, *entry}); !ok)
      problem = ok.error();
    if (entry->continues)
      return std::nullopt;
    return rungs->reason_of(*entry);
  }
};

/// One start of a sweep.
class sweep_run {
public:
  sweep_run(const run_request& request, const search_space& space,
            const sweep_options& options, sweep_result& outcome)
    : request_(request), space_(space), options_(options), outcome_(outcome),
      searcher_(options.searcher ? options.searcher : random_search()),
      console_(request.run.quiet ? console_style::quiet
                                 : console_style::automatic) {}

  ~sweep_run() {
    std::lock_guard guard{comparer_->mutex};
    comparer_->store = nullptr;
  }

  sweep_run(const sweep_run&) = delete;
  sweep_run& operator=(const sweep_run&) = delete;

  /// Refuses what can never work; writes nothing.
  expected<void> check();

  /// Takes the sweep's folder, and what earlier starts left there.
  expected<void> open();

  /// Runs all trials. An error ends the sweep once those under way have ended.
  void run(caf::actor_system& system, interrupt_watch& signals) noexcept;

  /// Whether a thread uses the actor system that cannot be ended.
  bool left_threads() const noexcept { return left_threads_; }

  sweep_console& console() noexcept { return console_; }

private:
  expected<void> check_history() const;
  expected<void> begin_trials();
  expected<bool> begin_next();
  expected<void> begin(trial x, run_request request);
  void run_all();
  expected<run_request> request_for(const trial& x) const;
  void serve(active_trial& x, run_request request) noexcept;
  void end_trials();
  expected<void> end(active_trial& x);
  expected<void> note_end(trial x);
  void ask_to_end(interrupt how);
  void wait(const interrupt_watch& signals);
  void show();
  void show_notes(run_handle& run, const std::string& name);
  void fail(error reason);
  sweep_status status();
  bool is_ending() const { return outcome_.error.has_value(); }

  const run_request& request_;
  const search_space& space_;
  const sweep_options& options_;
  sweep_result& outcome_;
  std::shared_ptr<searcher> searcher_;
  sweep_console console_;
  int at_once_ = 1;
  std::unique_ptr<sweep_store> store_;
  std::shared_ptr<comparer> comparer_ = std::make_shared<comparer>();
  // Begun by an earlier start, the last first.
  std::vector<std::size_t> resumed_;
  std::size_t ended_ = 0;
  bool has_metric_ = false; // a trial that ended had it
  bool left_threads_ = false;
  clock_type::time_point begin_ = clock_type::now();
  caf::actor_system* system_ = nullptr;
  const interrupt_watch* signals_ = nullptr;
  unique_fd wake_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::mutex mutex_; // guards what follows
  // By the fit() thread only.
  std::vector<std::unique_ptr<active_trial>> active_;
  interrupt asked_ = interrupt::none;
};

// -- before the first trial

expected<void> sweep_run::check() {
  TROUPE_TRY_VOID(internal::validate(space_));
  TROUPE_TRY_VOID(check_options(options_, *searcher_));
  TROUPE_TRY_VOID(internal::validate(request_));
  TROUPE_TRY_VOID(check_fields(space_, request_.loop));
  at_once_ = options_.max_concurrent.value_or(concurrency(request_.scaling));
  return check_sharing(request_, at_once_);
}

expected<void> sweep_run::open() {
  auto run = resolve(request_.run);
  sweep_description description;
  description.name = run.name.value_or("sweep");
  description.space = space_text(space_);
  description.searcher = searcher_->name();
  TROUPE_TRY(store_, sweep_store::open(run.storage_path, description));
  outcome_.path = store_->path();
  comparer_->metric = options_.metric;
  comparer_->store = store_.get();
  auto& history = store_->history();
  if (options_.halving) {
    comparer_->rungs.emplace(*options_.halving, options_.order);
    for (auto& x : history.comparisons)
      if (x.metric == options_.metric)
        comparer_->rungs->restore(x.content);
  }
  outcome_.trials = history.trials;
  for (auto& x : outcome_.trials) {
    x.score = x.metrics.find_number(options_.metric);
    if (x.score && std::isnan(*x.score))
      x.score.reset();
    has_metric_ = has_metric_ || x.metrics.contains(options_.metric);
    if (x.status == run_status_kind::running)
      resumed_.push_back(x.index);
  }
  std::ranges::reverse(resumed_);
  ended_ = history.ends.size();
  TROUPE_TRY_VOID(check_history());
  for (auto index : history.ends)
    searcher_->tell(outcome_.trials.at(index));
  if (ended_ > 0 || !resumed_.empty())
    console_.note(concat(store_->path().string(), ": ", ended_,
                         " trials have ended, ", resumed_.size(),
                         " are resumed"));
  return {};
}

expected<void> sweep_run::check_history() const {
  if (has_metric_)
    return {};
  for (auto& x : outcome_.trials)
    if (x.status == run_status_kind::finished)
      return failure(
        ec::invalid_config,
        concat("no trial that has ended reported the metric '", options_.metric,
               "'; ", x.name, " reported: ",
               x.metrics.empty() ? "nothing" : to_string(x.metrics)));
  return {};
}

// -- beginning trials

expected<void> sweep_run::begin_trials() {
  while (!is_ending() && static_cast<int>(active_.size()) < at_once_) {
    TROUPE_TRY(auto has_begun, begin_next());
    if (!has_begun)
      return {};
  }
  return {};
}

expected<bool> sweep_run::begin_next() {
  if (!resumed_.empty()) {
    auto index = resumed_.back();
    resumed_.pop_back();
    auto x = outcome_.trials.at(index);
    // Its driver may have died between its end and the line about that.
    auto before = result::from_path(store_->path() / x.name);
    if (before && before->status == run_status_kind::finished) {
      x.status = before->status;
      x.metrics = before->metrics;
      x.reason = before->stop_reason;
      if (auto rows = before->metrics_history())
        x.reports = rows->size();
      TROUPE_TRY_VOID(note_end(std::move(x)));
      return true;
    }
    TROUPE_TRY(auto request, request_for(x));
    TROUPE_TRY_VOID(begin(std::move(x), std::move(request)));
    return true;
  }
  auto index = outcome_.trials.size();
  if (options_.trials && index >= *options_.trials)
    return false;
  auto params = searcher_->ask(space_, index);
  if (!params)
    return false;
  trial x;
  x.index = index;
  x.name = trial_name(index);
  x.params = std::move(*params);
  // Before it is recorded: params that do not fit leave nothing behind.
  TROUPE_TRY(auto request, request_for(x));
  TROUPE_TRY_VOID(store_->begin(x));
  outcome_.trials.push_back(x);
  TROUPE_TRY_VOID(begin(std::move(x), std::move(request)));
  return true;
}

expected<run_request> sweep_run::request_for(const trial& x) const {
  auto result = request_;
  auto loop = request_.loop.changed(texts_of(x.params), true);
  if (!loop)
    return failure(loop.error().code,
                   x.name + ": " + std::move(loop.error().message));
  result.loop = std::move(*loop);
  auto& run = result.run;
  if (options_.prepare)
    options_.prepare(x, run);
  run.name = x.name;
  run.storage_path = store_->path();
  run.if_finished = if_finished::refuse;
  run.quiet = true;
  if (options_.halving && options_.halving->max_reports) {
    auto most = *options_.halving->max_reports;
    run.stop.reports = std::min(run.stop.reports.value_or(most), most);
  }
  return result;
}

expected<void> sweep_run::begin(trial x, run_request request) {
  console_.log(trial_text(x, options_.metric));
  auto& mine = *active_.emplace_back(std::make_unique<active_trial>());
  mine.content = std::move(x);
  try {
    // With the caller's signal mask, which programs that callbacks start have.
    mine.thread =
      std::thread{[this, &mine, request = std::move(request)]() mutable {
        serve(mine, std::move(request));
      }};
  } catch (const std::system_error& problem) {
    active_.pop_back();
    return failure(ec::spawn, std::string{"no thread: "} + problem.what());
  }
  return {};
}

// On the trial's own thread: to start a run and to wait for its end takes time.
void sweep_run::serve(active_trial& x, run_request request) noexcept {
  expected<result> outcome;
  try {
    auto is_asked = [this] {
      std::lock_guard guard{mutex_};
      return asked_ != interrupt::none;
    };
    run_surroundings around;
    around.given_up = is_asked;
    around.enough = [all = comparer_,
                     index = x.content.index](const report_batch& batch) {
      return all->judge(index, batch);
    };
    auto run =
      run_handle::start(std::move(request), *system_, std::move(around));
    if (run) {
      auto mine = std::make_shared<run_handle>(std::move(*run));
      {
        std::lock_guard guard{mutex_};
        x.run = mine;
        if (asked_ == interrupt::stop)
          mine->stop();
        else if (asked_ == interrupt::preempt)
          mine->preempt();
      }
      outcome = mine->wait([this] { return signals_->count() > 1; });
    } else {
      outcome = tl::unexpected{std::move(run.error())};
    }
  } catch (...) {
    outcome = tl::unexpected{caught("the trial could not continue")};
  }
  std::lock_guard guard{mutex_};
  x.outcome = std::move(outcome);
  std::uint64_t one = 1;
  (void) !::write(wake_.get(), &one, sizeof(one));
}

// -- ending trials

void sweep_run::end_trials() {
  for (std::size_t i = 0; i < active_.size();) {
    {
      std::lock_guard guard{mutex_};
      if (!active_[i]->outcome) {
        ++i;
        continue;
      }
    }
    auto x = std::move(active_[i]);
    active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
    x->thread.join();
    if (auto ok = end(*x); !ok)
      fail(ok.error());
  }
}

expected<void> sweep_run::end(active_trial& x) {
  auto& outcome = *x.outcome;
  if (x.run) {
    left_threads_ = left_threads_ || x.run->threads_left_behind() > 0;
    show_notes(*x.run, x.content.name);
  }
  auto was_asked = asked_ != interrupt::none;
  if (!outcome) {
    if (was_asked && outcome.error().code == ec::stopped)
      return {};
    return failure(outcome.error().code,
                   x.content.name + ": " + outcome.error().message);
  }
  auto& done = x.content;
  done.status = outcome->status;
  done.metrics = outcome->metrics;
  done.seconds = seconds_since(x.begin);
  done.reports = x.run->status().reports;
  done.reason = outcome->error ? outcome->error->message : outcome->stop_reason;
  auto is_over = done.status == run_status_kind::finished
                 || done.status == run_status_kind::errored;
  if (!is_over && was_asked)
    return {}; // The next start resumes it.
  return note_end(std::move(done));
}

expected<void> sweep_run::note_end(trial x) {
  x.score = x.metrics.find_number(options_.metric);
  if (x.score && std::isnan(*x.score))
    x.score.reset();
  TROUPE_TRY_VOID(store_->end(x));
  ++ended_;
  console_.note(trial_text(x, options_.metric));
  outcome_.trials.at(x.index) = x;
  has_metric_ = has_metric_ || x.metrics.contains(options_.metric);
  searcher_->tell(x);
  return x.status == run_status_kind::finished ? check_history()
                                               : expected<void>{};
}

void sweep_run::fail(error reason) {
  if (!outcome_.error)
    outcome_.error = std::move(reason);
}

void sweep_run::ask_to_end(interrupt how) {
  std::lock_guard guard{mutex_};
  if (how <= asked_)
    return;
  asked_ = how;
  for (auto& x : active_)
    if (x->run && how == interrupt::stop)
      x->run->stop();
    else if (x->run)
      x->run->preempt();
}

// -- the sweep

void sweep_run::run(caf::actor_system& system,
                    interrupt_watch& signals) noexcept {
  system_ = &system;
  signals_ = &signals;
  try {
    run_all();
  } catch (...) {
    fail(caught("the sweep could not continue"));
  }
  // The system goes after the runs.
  ask_to_end(interrupt::stop);
  for (auto& x : active_)
    x->thread.join();
  active_.clear();
  outcome_.stop_requested = signals.asked() != interrupt::none;
  signals.answer(signals.asked());
}

void sweep_run::run_all() {
  for (;;) {
    end_trials();
    if (auto asked = signals_->asked(); asked != interrupt::none) {
      ask_to_end(asked);
      fail({ec::stopped, "the sweep was stopped by a signal; start it again to "
                         "resume it"});
    }
    if (auto ok = begin_trials(); !ok)
      fail(ok.error());
    if (active_.empty())
      break;
    show();
    wait(*signals_);
  }
  auto problem = [this] {
    std::lock_guard guard{comparer_->mutex};
    return comparer_->problem;
  }();
  if (problem)
    fail(std::move(problem));
  console_.note(totals_text(status()));
}

void sweep_run::wait(const interrupt_watch& signals) {
  // A signal that was heeded stays readable.
  auto signal_fd = asked_ == interrupt::none ? signals.fd() : -1;
  pollfd sources[] = {{wake_.get(), POLLIN, 0}, {signal_fd, POLLIN, 0}};
  ::poll(sources, 2, redraw_ms);
  std::uint64_t count = 0;
  (void) !::read(wake_.get(), &count, sizeof(count));
}

void sweep_run::show() {
  for (auto& x : active_) {
    std::shared_ptr<run_handle> run;
    {
      std::lock_guard guard{mutex_};
      run = x->run;
    }
    if (run)
      show_notes(*run, x->content.name);
  }
  if (console_.style() == console_style::live)
    console_.update(status());
}

void sweep_run::show_notes(run_handle& run, const std::string& name) {
  for (auto& line : run.monitor().take_notes())
    if (!line.starts_with("the run ends: ")) // `trial_text` says so, too.
      console_.note(name + ": " + line);
}

sweep_status sweep_run::status() {
  sweep_status result;
  result.metric = options_.metric;
  for (auto& x : active_) {
    auto shown = x->content;
    shown.seconds = seconds_since(x->begin);
    std::lock_guard guard{mutex_};
    if (x->run) {
      auto now = x->run->status();
      shown.reports = now.reports;
      shown.metrics = std::move(now.last_metrics);
    }
    result.running.push_back(std::move(shown));
  }
  std::ranges::sort(result.running, {}, &trial::index);
  result.ended = ended_;
  for (auto& x : outcome_.trials)
    result.failed += x.status == run_status_kind::errored;
  result.trials = options_.trials;
  if (auto best = outcome_.best())
    result.best = std::move(*best);
  result.elapsed_s = seconds_since(begin_);
  return result;
}

void run_trials(sweep_run& run, const run_request& request, run_home& home) {
  // CAF ends the program without descriptors, so its system comes first.
  interrupt_watch signals{request.run.preempt_signals};
  run.run(home.system(), signals);
  if (run.left_threads())
    home.keep();
}

void fit_into(sweep_result& outcome, const run_request& request,
              const search_space& space, const sweep_options& options) {
  outcome.order = options.order;
  sweep_run run{request, space, options, outcome};
  auto home = run.check().and_then([&] { return run.open(); }).and_then([] {
    return run_home::make(nullptr, false);
  });
  if (home)
    run_trials(run, request, **home);
  else
    outcome.error = std::move(home.error());
  if (outcome.error)
    run.console().note(outcome.error->message);
}

} // namespace

expected<trial> sweep_result::best() const {
  const trial* result = nullptr;
  for (auto& x : trials)
    if (x.score && x.status == run_status_kind::finished
        && (!result
            || (order == score_order::max ? *x.score > *result->score
                                          : *x.score < *result->score)))
      result = &x;
  if (!result)
    return failure(ec::invalid_argument,
                   "no trial of the sweep has finished with a score");
  return *result;
}

sweep_result sweep::fit() const noexcept {
  sweep_result outcome;
  try {
    fit_into(outcome, request_, space_, options_);
  } catch (...) {
    outcome.error = caught("the sweep could not continue");
  }
  return outcome;
}

} // namespace troupe
