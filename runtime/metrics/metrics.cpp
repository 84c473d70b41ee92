#include "troupe/runtime/metrics/metrics.hpp"

#include <algorithm>
#include <stdexcept>

namespace troupe {

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
  throw std::out_of_range("no metric is called '" + std::string{name} + "'");
}

const metric_value* metrics::find(std::string_view name) const {
  auto i = values_.find(name);
  return i == values_.end() ? nullptr : &i->second;
}

std::optional<double> metrics::number(std::string_view name) const {
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
                   "the " + std::to_string(x.size())
                     + " metrics of a report have " + std::to_string(bytes)
                     + " bytes, more than the "
                     + std::to_string(max_metrics_bytes)
                     + " they may have (put files into a checkpoint)");
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

} // namespace troupe
