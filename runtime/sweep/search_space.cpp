#include "troupe/runtime/sweep/search_space.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "troupe/runtime/storage/json.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe {

using namespace internal;

namespace {

param_range real_range(double low, double high, bool is_log) {
  param_range x;
  x.is_log = is_log;
  x.low = low;
  x.high = high;
  return x;
}

param_range integer_range(std::int64_t first, std::int64_t last, bool is_log) {
  param_range x;
  x.kind = param_range::kind_type::integer;
  x.is_log = is_log;
  x.first = first;
  x.last = last;
  return x;
}

std::string text_of(const metric_value& x) {
  std::string result;
  json::append(result, x);
  return result;
}

std::string bounds_text(const param_range& x) {
  auto is_real = x.kind == param_range::kind_type::real;
  auto low = is_real ? metric_value{x.low} : metric_value{x.first};
  auto high = is_real ? metric_value{x.high} : metric_value{x.last};
  return "from " + to_string(low) + " to " + to_string(high);
}

/// What is wrong with *x*; empty if nothing is.
std::string problem_of(const param_range& x) {
  if (x.kind == param_range::kind_type::choice) {
    if (x.values.empty())
      return "is a choice without values";
    std::set<std::string> seen;
    for (auto& value : x.values)
      if (!seen.insert(text_of(value)).second)
        return "is a choice that has " + to_string(value) + " twice";
    return {};
  }
  auto is_real = x.kind == param_range::kind_type::real;
  if (is_real && !(std::isfinite(x.low) && std::isfinite(x.high)))
    return "goes " + bounds_text(x) + ": both bounds must be finite";
  if (is_real ? x.low >= x.high : x.first > x.last)
    return "goes " + bounds_text(x) + ": the first bound must be the lower one";
  if (x.is_log && (is_real ? x.low <= 0 : x.first <= 0))
    return "goes " + bounds_text(x)
           + " on a logarithmic scale: both bounds must be above zero";
  return {};
}

/// One more than the distance of the bounds; as a floating-point number because
/// it may be 2^64.
long double count_of(const param_range& x) {
  return static_cast<long double>(x.last) - static_cast<long double>(x.first)
         + 1;
}

double real_at(const param_range& x, double place) {
  auto value = x.is_log
                 ? std::exp(std::lerp(std::log(x.low), std::log(x.high), place))
                 : std::lerp(x.low, x.high, place);
  return std::clamp(value, x.low, x.high);
}

std::int64_t integer_at(const param_range& x, double place) {
  auto offset = static_cast<long double>(place) * count_of(x);
  if (x.is_log) {
    auto low = std::log(static_cast<long double>(x.first));
    auto high = std::log(static_cast<long double>(x.last) + 1);
    offset = std::exp(low + (high - low) * static_cast<long double>(place))
             - static_cast<long double>(x.first);
  }
  offset = std::clamp(std::floor(offset), 0.0L, count_of(x) - 1);
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(x.first)
                                   + static_cast<std::uint64_t>(offset));
}

void append_param(std::string& out, const search_param& param) {
  json::object_writer object{out};
  object.field("name", param.name);
  auto& x = param.range;
  switch (x.kind) {
    case param_range::kind_type::real:
      object.field("low", metric_value{x.low});
      object.field("high", metric_value{x.high});
      break;
    case param_range::kind_type::integer:
      object.field("first", x.first).field("last", x.last);
      break;
    case param_range::kind_type::choice:
      object.array_field("choice", x.values,
                         [](std::string& to, const metric_value& value) {
                           json::append(to, value);
                         });
  }
  if (x.is_log)
    object.field("scale", "log");
  object.end();
}

} // namespace

param_range uniform(double low, double high) {
  return real_range(low, high, false);
}

param_range log_uniform(double low, double high) {
  return real_range(low, high, true);
}

param_range integers(std::int64_t first, std::int64_t last) {
  return integer_range(first, last, false);
}

param_range log_integers(std::int64_t first, std::int64_t last) {
  return integer_range(first, last, true);
}

param_range choice(std::vector<metric_value> values) {
  param_range x;
  x.kind = param_range::kind_type::choice;
  x.values = std::move(values);
  return x;
}

namespace internal {

expected<void> validate(const search_space& space) {
  if (space.empty())
    return failure(ec::invalid_config, "the space of the sweep has no params");
  std::set<std::string> names;
  for (auto& param : space) {
    if (param.name.empty())
      return failure(ec::invalid_config,
                     "the space of the sweep has a param without a name");
    if (!names.insert(param.name).second)
      return failure(ec::invalid_config,
                     "the space of the sweep has two params called '"
                       + param.name + "'");
    if (auto problem = problem_of(param.range); !problem.empty())
      return failure(ec::invalid_config,
                     "the param '" + param.name + "' of the sweep " + problem);
  }
  return {};
}

metric_value value_at(const param_range& range, double place) {
  switch (range.kind) {
    case param_range::kind_type::real:
      return real_at(range, place);
    case param_range::kind_type::integer:
      return integer_at(range, place);
    case param_range::kind_type::choice:
      break;
  }
  auto size = range.values.size();
  auto index =
    static_cast<std::size_t>(std::max(place, 0.0) * static_cast<double>(size));
  return range.values[std::min(index, size - 1)];
}

std::vector<metric_value> grid_values(const param_range& range, int steps) {
  if (range.kind == param_range::kind_type::choice)
    return range.values;
  std::vector<metric_value> result;
  auto is_real = range.kind == param_range::kind_type::real;
  if (!is_real && count_of(range) <= static_cast<long double>(steps)) {
    for (auto x = range.first;; ++x) {
      result.emplace_back(x);
      if (x == range.last)
        return result;
    }
  }
  for (int i = 0; i < steps; ++i) {
    auto place = steps == 1 ? 0.5 : static_cast<double>(i) / (steps - 1);
    // Of integers, the last one has no place above its own.
    auto value = is_real ? metric_value{real_at(range, place)}
                         : metric_value{integer_at(range, place)};
    if (result.empty() || !(result.back() == value))
      result.push_back(std::move(value));
  }
  return result;
}

std::string space_text(const search_space& space) {
  std::string result;
  json::append_list(result, space, append_param);
  return result;
}

} // namespace internal

} // namespace troupe
