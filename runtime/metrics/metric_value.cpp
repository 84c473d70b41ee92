#include "troupe/runtime/metrics/metric_value.hpp"

#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>

namespace troupe {

double metric_value::number() const noexcept {
  if (auto x = std::get_if<bool>(&value_))
    return *x ? 1.0 : 0.0;
  if (auto x = std::get_if<std::int64_t>(&value_))
    return static_cast<double>(*x);
  if (auto x = std::get_if<double>(&value_))
    return *x;
  return std::numeric_limits<double>::quiet_NaN();
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

} // namespace troupe
