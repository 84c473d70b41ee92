#include "troupe/runtime/sweep/sweep_ledger.hpp"

#include <algorithm>
#include <cmath>

#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

bool has_failed(const trial& x) {
  return x.status == run_status_kind::errored;
}

std::string cause_of(const trial& x) {
  return x.name + ": " + (x.reason.empty() ? "no reason is known" : x.reason);
}

} // namespace

expected<void> sweep_ledger::restore() {
  auto& history = store_.history();
  trials_ = history.trials;
  for (auto& x : trials_) {
    if (rules_.retry_failed && has_failed(x)) {
      trial again;
      again.index = x.index;
      again.name = std::move(x.name);
      again.params = std::move(x.params);
      x = std::move(again);
      TROUPE_TRY_VOID(store_.begin(x));
    }
    rate(x);
    count(x);
    if (x.status == run_status_kind::running)
      resumed_.push_back(x.index);
  }
  std::ranges::reverse(resumed_);
  ended_ = trials_.size() - resumed_.size();
  TROUPE_TRY_VOID(check_metric());
  for (auto index : history.ends)
    if (trials_.at(index).status != run_status_kind::running)
      TROUPE_TRY_VOID(tell(trials_.at(index)));
  return {};
}

std::optional<trial> sweep_ledger::next_begun() {
  if (resumed_.empty())
    return std::nullopt;
  auto index = resumed_.back();
  resumed_.pop_back();
  return trials_.at(index);
}

expected<std::optional<trial>>
sweep_ledger::next_new(const search_space& space) {
  std::optional<trial> none;
  auto index = trials_.size();
  if (rules_.trials && index >= *rules_.trials)
    return none;
  TROUPE_TRY(auto params, ask(space, index));
  if (!params)
    return none;
  trial x;
  x.index = index;
  x.name = trial_name(index);
  x.params = std::move(*params);
  TROUPE_TRY_VOID(check_params(space, x));
  return std::optional{std::move(x)};
}

expected<std::optional<metrics>> sweep_ledger::ask(const search_space& space,
                                                   std::size_t index) {
  try {
    return searcher_->ask(space, index);
  } catch (...) {
    return tl::unexpected{
      caught(concat("the searcher (", searcher_->name(),
                    ") threw when it was asked for ", trial_name(index)))};
  }
}

expected<void> sweep_ledger::tell(const trial& x) {
  try {
    searcher_->tell(x);
    return {};
  } catch (...) {
    return tl::unexpected{caught(concat("the searcher (", searcher_->name(),
                                        ") threw in tell() for ", x.name))};
  }
}

expected<void> sweep_ledger::check_params(const search_space& space,
                                          const trial& x) const {
  auto refuse = [&](const char* what, const std::string& name) {
    return failure(ec::invalid_argument,
                   concat("the searcher (", searcher_->name(), ") chose ", what,
                          " '", name, "' for ", x.name));
  };
  for (auto& param : space)
    if (!x.params.contains(param.name))
      return refuse("no value of the param", param.name);
  for (auto& [name, value] : x.params)
    if (std::ranges::find(space, name, &search_param::name) == space.end())
      return refuse("a value of a param that is not in the space,", name);
  return {};
}

expected<void> sweep_ledger::begin(const trial& x) {
  TROUPE_TRY_VOID(store_.begin(x));
  trials_.push_back(x);
  return {};
}

expected<void> sweep_ledger::end(trial x) {
  rate(x);
  TROUPE_TRY_VOID(store_.end(x));
  ++ended_;
  count(x);
  if (has_failed(x)) {
    ++failed_now_;
    first_failed_ = first_failed_.value_or(x.index);
  }
  trials_.at(x.index) = x;
  TROUPE_TRY_VOID(tell(x));
  return x.status == run_status_kind::finished ? check_metric()
                                               : expected<void>{};
}

void sweep_ledger::rate(trial& x) {
  x.score = x.metrics.find_number(rules_.metric);
  if (x.score && std::isnan(*x.score))
    x.score.reset();
}

void sweep_ledger::count(const trial& x) {
  has_metric_ = has_metric_ || x.metrics.contains(rules_.metric);
  has_finished_ = has_finished_ || x.status == run_status_kind::finished;
}

expected<void> sweep_ledger::check_metric() const {
  if (has_metric_)
    return {};
  for (auto& x : trials_)
    if (x.status == run_status_kind::finished)
      return failure(
        ec::invalid_config,
        concat("no trial that has ended reported the metric '", rules_.metric,
               "'; ", x.name, " reported: ",
               x.metrics.empty() ? "nothing" : to_string(x.metrics)));
  return {};
}

bool sweep_ledger::is_hopeless() const {
  return rules_.max_failed_trials && !has_finished_
         && failed_now_ >= *rules_.max_failed_trials;
}

std::optional<error> sweep_ledger::reason_to_end() const {
  if (is_hopeless())
    return error{ec::rank_failed,
                 concat(counted(failed_now_, "trial"),
                        " failed and none has finished, so the sweep ends "
                        "(sweep_options::max_failed_trials is ",
                        *rules_.max_failed_trials, "); the first, ",
                        cause_of(trials_.at(*first_failed_)))};
  if (!trials_.empty() && std::ranges::all_of(trials_, has_failed))
    return error{ec::rank_failed,
                 concat("all trials of the sweep failed, ", trials_.size(),
                        " of ", trials_.size(), "; the first, ",
                        cause_of(trials_.front()))};
  return std::nullopt;
}

std::size_t sweep_ledger::failed() const {
  return static_cast<std::size_t>(std::ranges::count_if(trials_, has_failed));
}

} // namespace troupe::internal
