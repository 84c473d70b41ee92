#include "troupe/callbacks/report_page/journal_digest.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "troupe/callbacks/tracking/loop_record.hpp"

namespace troupe::internal {

namespace {

constexpr std::size_t max_left_out = 10'000;
constexpr std::size_t max_damages = 5;

std::string text_of(const metrics& fields, std::string_view name) {
  auto x = fields.find(name);
  return x ? to_string(*x) : std::string{};
}

} // namespace

double journal_digest::seconds_at(time_point x) const {
  return first_time ? std::chrono::duration<double>(x - *first_time).count()
                    : 0;
}

void journal_digest::add(const journal_entry& x) {
  auto time = std::visit([](auto& entry) { return entry.time; }, x);
  if (!first_time)
    first_time = time;
  last_time = std::max(last_time, time);
  if (auto row = std::get_if<journaled_batch>(&x))
    add_row(*row);
  else
    add_event(std::get<journal_event>(x));
}

void journal_digest::add_damage(std::string complaint) {
  if (++damage_count <= max_damages)
    damages.push_back(std::move(complaint));
}

void journal_digest::begin_attempt(attempt x) {
  attempts.push_back(std::move(x));
  end.reset();
  last_report_.reset();
}

void journal_digest::add_row(const journaled_batch& x) {
  // The line about the attempt may be damaged.
  if (attempts.empty() || attempts.back().number != x.attempt)
    begin_attempt(
      {.number = x.attempt, .time = x.time, .first_report = x.index});
  ++reports;
  ++attempts.back().reports;
  world_size = x.values.size();
  add_values(x);
  add_times(x);
  if (!x.checkpoint.empty())
    checkpoints.push_back(
      {x.checkpoint, x.index, x.attempt, x.time, x.checkpoint_s});
}

void journal_digest::add_values(const journaled_batch& x) {
  std::map<std::string_view, std::vector<double>> numbers;
  std::map<std::string_view, const metric_value*> first_texts;
  for (auto& values : x.values)
    for (auto& [name, value] : values)
      if (value.is_number())
        numbers[name].push_back(value.number());
      else
        first_texts.emplace(name, &value);
  auto index = static_cast<double>(x.index);
  for (auto& [name, values] : numbers)
    add_number(reported, std::string{name},
               point_of(index, seconds_at(x.time), segment(), values));
  for (auto& [name, value] : first_texts)
    add_text(std::string{name}, to_string(*value));
}

void journal_digest::add_times(const journaled_batch& x) {
  auto index = static_cast<double>(x.index);
  auto point = [&](std::span<const double> values) {
    return point_of(index, seconds_at(x.time), segment(), values);
  };
  if (last_report_) {
    std::array interval{
      std::chrono::duration<double>(x.time - *last_report_).count()};
    intervals.add(point(interval));
  }
  last_report_ = x.time;
  if (x.step_s.empty())
    return;
  step_times.add(point(x.step_s));
  waits.add(point({&x.wait_s, 1}));
  ranks.resize(std::max(ranks.size(), x.step_s.size()));
  of_ranks.resize(std::min(ranks.size(), max_rank_curves));
  for (std::size_t rank = 0; rank < x.step_s.size(); ++rank) {
    auto seconds = x.step_s[rank];
    auto& times = ranks[rank];
    ++times.reports;
    times.sum += seconds;
    times.max = std::max(times.max, seconds);
    times.last = seconds;
    if (rank < of_ranks.size())
      of_ranks[rank].add(point({&seconds, 1}));
  }
}

void journal_digest::add_event(const journal_event& x) {
  if (auto record = to_loop_record(x.kind, x.fields)) {
    if (auto log = std::get_if<logged_metrics>(&*record))
      add_logged(x, log->values);
    else if (auto settings = std::get_if<logged_params>(&*record))
      add_params(settings->values);
    else if (auto text = std::get_if<logged_text>(&*record))
      add_text(text->name, text->text);
    return;
  }
  if (x.kind == event_kind::attempt_begun) {
    auto first = x.fields.find_number("first_report").value_or(0);
    begin_attempt({.number = x.attempt,
                   .time = x.time,
                   .first_report = static_cast<std::uint64_t>(first),
                   .resume = text_of(x.fields, "resume")});
  }
  if (x.kind == event_kind::ranks_failed || x.kind == event_kind::driver_lost
      || x.kind == event_kind::attempt_left) {
    // Its driver may have been killed before it wrote the line about it.
    if (attempts.empty() || attempts.back().number != x.attempt)
      begin_attempt(
        {.number = x.attempt, .time = x.time, .first_report = reports});
    attempts.back().failure = text_of(x.fields, "reason");
  }
  if (x.kind == event_kind::run_ended)
    end =
      run_end{text_of(x.fields, "status"), text_of(x.fields, "error"), x.time};
  ++event_count;
  events.push_back(x);
  if (events.size() > max_notes)
    events.pop_front();
}

void journal_digest::add_logged(const journal_event& x, const metrics& values) {
  // A damaged journal may have any number.
  auto step = x.fields.find_number("step").value_or(0);
  for (auto& [name, value] : values)
    if (value.is_number()) {
      std::array numbers{value.number()};
      add_number(logged, name,
                 point_of(step, seconds_at(x.time), segment(), numbers));
    } else {
      add_text(name, to_string(value));
    }
}

void journal_digest::add_params(const metrics& values) {
  for (auto& [name, value] : values)
    keep(params, name, to_string(value));
}

void journal_digest::add_number(curve_map& curves, const std::string& name,
                                const curve_point& x) {
  auto i = curves.find(name);
  if (i == curves.end()) {
    if (curves.size() >= max_curves) {
      if (left_out.size() < max_left_out)
        left_out.insert(name);
      return;
    }
    i = curves.emplace(name, curve{}).first;
  }
  i->second.add(x);
}

void journal_digest::add_text(const std::string& name, std::string text) {
  keep(texts, name, std::move(text));
}

void journal_digest::keep(std::map<std::string, std::string>& all,
                          const std::string& name, std::string text) {
  if (all.size() < max_notes || all.contains(name))
    all[name] = std::move(text);
  else if (unkept.size() < max_left_out)
    unkept.insert(name);
}

} // namespace troupe::internal
