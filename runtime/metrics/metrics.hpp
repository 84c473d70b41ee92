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

  /// The value called *name*, made (false) if it is not there.
  metric_value& operator[](const std::string& name) { return values_[name]; }

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
