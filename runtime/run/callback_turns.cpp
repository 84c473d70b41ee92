#include "troupe/runtime/run/callback_turns.hpp"

#include <algorithm>
#include <iterator>

#include "troupe/runtime/process/secrets.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

callback_turns::callback_turns(std::vector<actor> actors, bool has_classes,
                               bool aborts)
  : has_classes_(has_classes), aborts_(aborts) {
  for (auto& x : actors)
    actors_.push_back({std::move(x), false, false, {}});
}

void callback_turns::begin(const event& x) {
  event_ = x;
  next_actor_ = 0;
  classes_are_next_ = has_classes_;
  if (!left_classes_.empty())
    skip(left_classes_);
}

std::optional<callback_turns::turn> callback_turns::next(time_point now) {
  if (std::exchange(classes_are_next_, false))
    return open(std::nullopt, now);
  for (; next_actor_ < actors_.size(); ++next_actor_) {
    auto& x = actors_[next_actor_];
    auto gets_it = x.who.observes || !event_.is_for_observers;
    if (gets_it && !x.gone)
      return open(next_actor_, now);
    if (gets_it) {
      if (x.reason)
        fail({std::exchange(x.reason, {})});
      skip(name_of(next_actor_));
    }
    outcome_.times.push_back({x.who.name, 0});
  }
  return std::nullopt;
}

callback_turns::turn callback_turns::open(std::optional<std::size_t> whom,
                                          time_point now) {
  opened_ = now;
  open_ = turn{++turns_, whom};
  return *open_;
}

void callback_turns::classes_answered(callback_done x) {
  open_.reset();
  outcome_ = std::move(x);
}

void callback_turns::answered(callback_done x, time_point now) {
  actors_[next_actor_].refused = !x.failures.empty();
  std::ranges::move(x.orders, std::back_inserter(outcome_.orders));
  for (auto& failure : x.failures)
    failure = {ec::callback_failed, concat(name_of(next_actor_), " failed in ",
                                           event_.hook, ": ", failure.message)};
  close(std::move(x.failures), now);
}

void callback_turns::not_called(const std::string& why, time_point now) {
  close(
    {{ec::callback_failed, concat(name_of(next_actor_), " was not called: its ",
                                  event_.hook, ' ', why)}},
    now);
}

bool callback_turns::give_up(const std::string& waited, const running_class& x,
                             time_point now) {
  error reason{ec::callback_failed,
               concat(current(x), " did not return for ", waited,
                      "; the run continues without it")};
  if (open_->actor) {
    actors_[next_actor_].gone = true;
    skip(name_of(next_actor_));
    close({std::move(reason)}, now);
    return false;
  }
  reason.message += " and the callbacks beside it, whose thread is left behind";
  left_classes_ =
    (x.who.empty() ? "a callback" : x.who) + " and those beside it";
  has_classes_ = false;
  skip(left_classes_);
  open_.reset();
  fail({std::move(reason)});
  return true;
}

bool callback_turns::lost(std::size_t position, const std::string& how,
                          time_point now) {
  auto& x = actors_[position];
  if (std::exchange(x.gone, true))
    return false;
  auto is_asked = open_ && open_->actor == position;
  if (x.refused && !is_asked)
    return false; // The exception that ended it was its last answer.
  x.reason = {ec::callback_failed, concat(name_of(position), ' ', how,
                                          "; the run continues without it")};
  if (!is_asked)
    return false;
  skip(name_of(position));
  close({std::exchange(x.reason, {})}, now);
  return true;
}

std::string callback_turns::current(const running_class& x) const {
  if (open_ && open_->actor)
    return concat(name_of(*open_->actor), " in ", event_.hook);
  return x.text.empty() ? "the thread of the callbacks" : x.text;
}

void callback_turns::close(std::vector<error> failures, time_point now) {
  std::chrono::duration<double> spent = now - opened_;
  outcome_.seconds += spent.count();
  outcome_.times.push_back({actors_[next_actor_].who.name, spent.count()});
  fail(std::move(failures));
  ++next_actor_;
  open_.reset();
}

void callback_turns::fail(std::vector<error> failures) {
  for (auto& x : failures) {
    x.message = cut_reason(redacted(x.message));
    outcome_.failures.push_back(std::move(x));
    outcome_.abort = aborts_;
  }
}

void callback_turns::skip(std::string who) {
  outcome_.skipped.push_back(std::move(who));
}

std::string callback_turns::name_of(std::size_t position) const {
  return concat("callback actor ", position + 1, " (",
                actors_[position].who.name, ')');
}

} // namespace troupe::internal
