#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/metrics/metric_value.hpp"

namespace troupe {

class metrics;

/// Where the value of one name is, or goes: what `metrics::operator[]` returns.
/// To read a value that is not there throws `std::out_of_range`.
class metric_slot {
public:
  metric_slot(metrics& all, std::string name)
    : all_(&all), name_(std::move(name)) {}
  metric_slot(const metric_slot&) = default;

  metric_slot& operator=(metric_value x);
  metric_slot& operator=(const metric_slot& x) { return *this = x.value(); }

  const metric_value& value() const;
  operator const metric_value&() const { return value(); }

  bool is_number() const { return value().is_number(); }
  double number() const { return value().number(); }

  friend bool operator==(const metric_slot& a, const metric_value& b) {
    return a.value() == b;
  }

private:
  metrics* all_;
  std::string name_;
};

/// What one rank reports: values by name, ordered by name.
///
/// Nested groups are flat names with a slash: `{"val/loss", 0.3}`, or
/// `m.add_group("val", {{"loss", 0.3}})`.
class metrics {
public:
  using map_type = std::map<std::string, metric_value, std::less<>>;
  using const_iterator = map_type::const_iterator;

  metrics() = default;
  metrics(std::initializer_list<map_type::value_type> values)
    : values_(values) {}

  /// For `values["loss"] = 0.3`, and to read what is there: a name that is not
  /// adds nothing, but throws `std::out_of_range`.
  metric_slot operator[](std::string name) { return {*this, std::move(name)}; }
  const metric_value& operator[](std::string_view name) const {
    return at(name);
  }

  /// The value called *name*; throws `std::out_of_range` if there is none.
  const metric_value& at(std::string_view name) const;

  /// The value called *name* or nullptr.
  const metric_value* find(std::string_view name) const;

  /// The value called *name* if it is there and a number.
  std::optional<double> number(std::string_view name) const;

  /// Adds every value of *group* as `prefix/name`.
  void add_group(std::string_view prefix, const metrics& group);

  bool contains(std::string_view name) const { return find(name) != nullptr; }
  bool empty() const noexcept { return values_.empty(); }
  std::size_t size() const noexcept { return values_.size(); }
  const_iterator begin() const noexcept { return values_.begin(); }
  const_iterator end() const noexcept { return values_.end(); }

  bool operator==(const metrics&) const = default;

  template <class Inspector>
  friend bool inspect(Inspector& f, metrics& x) {
    return f.object(x).fields(f.field("values", x.values_));
  }

private:
  friend class metric_slot;

  map_type values_;
};

/// Largest size of the metrics of one rank's report, in bytes: names, texts,
/// and 8 for each number. Far over the gradient norms of a large model. Metrics
/// travel in messages and are written to the journal at every report; files
/// belong into checkpoints.
inline constexpr std::size_t max_metrics_bytes = 4 * 1024 * 1024;

/// Refuses empty names, names with control characters and reports over
/// `max_metrics_bytes`.
expected<void> validate(const metrics& x);

/// `name=value name=value …` as people read it.
std::string to_string(const metrics& x);

} // namespace troupe
