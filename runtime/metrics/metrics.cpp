#include "troupe/runtime/metrics/metrics.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <stdexcept>
#include <vector>

#include "troupe/runtime/near_names.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe {

using namespace internal;

namespace {

/// Most names in a sentence.
constexpr std::size_t max_listed_names = 12;

} // namespace

double metric_value::number() const {
  if (auto x = std::get_if<bool>(&value_))
    return *x ? 1.0 : 0.0;
  if (auto x = std::get_if<std::int64_t>(&value_))
    return static_cast<double>(*x);
  if (auto x = std::get_if<double>(&value_))
    return *x;
  throw std::invalid_argument("the metric is the text '" + to_string(*this)
                              + "', not a number");
}

bool metric_value::operator==(const metric_value& other) const noexcept {
  auto x = std::get_if<double>(&value_);
  auto y = std::get_if<double>(&other.value_);
  if (x && y && std::isnan(*x) && std::isnan(*y))
    return true;
  return value_ == other.value_;
}

std::uint64_t metric_value::bits() const noexcept {
  if (auto x = std::get_if<bool>(&value_))
    return *x ? 1 : 0;
  if (auto x = std::get_if<std::int64_t>(&value_))
    return static_cast<std::uint64_t>(*x);
  if (auto x = std::get_if<double>(&value_))
    return std::bit_cast<std::uint64_t>(*x);
  return 0;
}

void metric_value::set(std::uint8_t kind, std::uint64_t bits,
                       std::string text) {
  switch (kind) {
    case 0:
      value_ = bits != 0;
      break;
    case 1:
      value_ = static_cast<std::int64_t>(bits);
      break;
    case 2:
      value_ = std::bit_cast<double>(bits);
      break;
    default:
      value_ = std::move(text);
  }
}

std::string to_string(const metric_value& x) {
  if (auto text = std::get_if<std::string>(&x.variant()))
    return *text;
  if (auto flag = std::get_if<bool>(&x.variant()))
    return *flag ? "true" : "false";
  if (auto integer = std::get_if<std::int64_t>(&x.variant()))
    return std::to_string(*integer);
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%.6g", x.number());
  return buffer;
}

metric_slot& metric_slot::operator=(metric_value x) {
  all_->values_.insert_or_assign(name_, std::move(x));
  return *this;
}

const metric_value& metric_slot::value() const {
  return all_->at(name_);
}

const metric_value& metrics::at(std::string_view name) const {
  if (auto x = find(name))
    return *x;
  std::string text = "no metric is called '" + std::string{name} + "'; there ";
  if (values_.empty())
    throw std::out_of_range(text + "is none");
  std::vector<std::string_view> known;
  for (auto& x : values_)
    known.push_back(x.first);
  text += known.size() == 1 ? "is " : "are ";
  text += listed(known, max_listed_names);
  if (known.size() > 1)
    text += did_you_mean(name, known);
  throw std::out_of_range(text);
}

const metric_value* metrics::find(std::string_view name) const {
  auto i = values_.find(name);
  return i == values_.end() ? nullptr : &i->second;
}

double metric_slot::number() const {
  return all_->number(name_);
}

double metrics::number(std::string_view name) const {
  auto& x = at(name);
  if (!x.is_number())
    throw std::invalid_argument("the metric '" + std::string{name}
                                + "' is the text '" + to_string(x)
                                + "', not a number");
  return x.number();
}

std::optional<double> metrics::find_number(std::string_view name) const {
  auto x = find(name);
  if (!x || !x->is_number())
    return std::nullopt;
  return x->number();
}

void metrics::add_group(std::string_view prefix, const metrics& group) {
  for (auto& [name, value] : group)
    values_[std::string{prefix} + '/' + name] = value;
}

expected<void> validate(const metrics& x) {
  auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
  std::size_t bytes = 0;
  for (auto& [name, value] : x) {
    if (name.empty())
      return failure(ec::invalid_argument, "a metric has an empty name");
    if (std::any_of(name.begin(), name.end(), is_control))
      return failure(ec::invalid_argument, "the metric name '"
                                             + name.substr(0, 64)
                                             + "' has a control character");
    auto text = std::get_if<std::string>(&value.variant());
    bytes += name.size() + (text ? text->size() : sizeof(double));
  }
  if (bytes > max_metrics_bytes)
    return failure(ec::invalid_argument,
                   concat("the ", x.size(), " metrics of a report have ", bytes,
                          " bytes, more than the ", max_metrics_bytes,
                          " they may have (put files into a checkpoint)"));
  return {};
}

std::string to_string(const metrics& x) {
  std::string result;
  for (auto& [name, value] : x) {
    if (!result.empty())
      result += ' ';
    result += name + '=' + to_string(value);
  }
  return result;
}

namespace {

/// Squares deviations relative to the largest one, so that none
/// overflows.
double deviation(const std::vector<double>& xs, double mean) {
  double largest = 0;
  for (auto x : xs)
    largest = std::max(largest, std::abs(x - mean));
  if (largest == 0)
    return 0;
  double sum = 0;
  for (auto x : xs) {
    auto part = (x - mean) / largest;
    sum += part * part;
  }
  return largest * std::sqrt(sum / static_cast<double>(xs.size()));
}

rank_spread spread_of(const std::vector<double>& xs) {
  constexpr auto nan = std::numeric_limits<double>::quiet_NaN();
  if (std::ranges::any_of(xs, [](double x) { return std::isnan(x); }))
    return {nan, nan, nan, nan, xs.size()};
  rank_spread result;
  result.count = xs.size();
  auto [min, max] = std::ranges::minmax(xs);
  result.min = min;
  result.max = max;
  auto n = static_cast<double>(xs.size());
  double sum = 0;
  double scaled = 0; // exact to the last bit or two, and never overflows
  for (auto x : xs) {
    sum += x;
    scaled += x / n;
  }
  // Rounding may move the mean of equal numbers past them.
  auto mean = std::isfinite(sum) ? sum / n : scaled;
  result.mean = std::isnan(mean) ? mean : std::clamp(mean, min, max);
  result.std =
    std::isfinite(min) && std::isfinite(max) ? deviation(xs, result.mean) : nan;
  return result;
}

} // namespace

std::map<std::string, rank_spread> aggregate(std::span<const metrics> ranks) {
  std::map<std::string, std::vector<double>> numbers;
  for (auto& rank : ranks)
    for (auto& [name, value] : rank)
      if (value.is_number())
        numbers[name].push_back(value.number());
  std::map<std::string, rank_spread> result;
  for (auto& [name, xs] : numbers)
    result.emplace(name, spread_of(xs));
  return result;
}

metrics aggregated_metrics(std::span<const metrics> ranks) {
  metrics result;
  for (auto& [name, x] : aggregate(ranks))
    result.add_group(
      name, {{"mean", x.mean}, {"min", x.min}, {"max", x.max}, {"std", x.std}});
  return result;
}

} // namespace troupe
