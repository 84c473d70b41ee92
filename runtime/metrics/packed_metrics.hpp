#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "troupe/runtime/metrics/metrics.hpp"

namespace troupe::internal {

/// Metrics in one piece of memory, which is never changed: how a report travels
/// from its rank into the journal. A copy costs nothing, however many metrics
/// there are.
class packed_metrics {
public:
  /// As in `metric_value`. A text points into the packed metrics.
  using value = std::variant<bool, std::int64_t, double, std::string_view>;

  packed_metrics() = default;
  packed_metrics(const metrics& x);
  packed_metrics(std::initializer_list<metrics::map_type::value_type> x)
    : packed_metrics(metrics{x}) {}

  /// Takes what `bytes()` returned in another process. False: it is damaged,
  /// and nothing has changed.
  [[nodiscard]] bool assign(std::string bytes);

  const std::string& bytes() const noexcept;

  bool empty() const noexcept { return bytes_ == nullptr; }

  metrics unpacked() const;

  /// The value called *name*, if there is one. Slower the more metrics there
  /// are.
  std::optional<metric_value> find(std::string_view name) const;

  /// The value called *name* if it is there and a number. As slow as `find`.
  std::optional<double> find_number(std::string_view name) const;

  /// Calls *f* with each name and its value, in order of the names.
  template <class F>
  void for_each(F f) const {
    std::string_view rest = bytes();
    while (!rest.empty()) {
      auto x = take(rest);
      f(x.name, x.content);
    }
  }

  /// As metrics compare.
  friend bool operator==(const packed_metrics& a, const packed_metrics& b) {
    return a.bytes_ == b.bytes_ || a.unpacked() == b.unpacked();
  }

  /// Whether *f* is true for one of the names and its value; calls it for none
  /// behind that.
  template <class F>
  bool any_of(F f) const {
    std::string_view rest = bytes();
    while (!rest.empty()) {
      auto x = take(rest);
      if (f(x.name, x.content))
        return true;
    }
    return false;
  }

private:
  struct entry {
    std::string_view name;
    value content;
  };

  /// Takes the first entry off *rest*, which is valid.
  static entry take(std::string_view& rest) noexcept;

  std::shared_ptr<const std::string> bytes_; // unset: no metrics
};

/// The same of every rank.
std::vector<packed_metrics> packed(const std::vector<metrics>& ranks);
std::vector<metrics> unpacked(const std::vector<packed_metrics>& ranks);

template <class Inspector>
bool inspect(Inspector& f, packed_metrics& x) {
  if (f.has_human_readable_format()) {
    auto get = [&x] { return x.unpacked(); };
    auto set = [&x](const metrics& all) { x = packed_metrics{all}; };
    return f.apply(get, set);
  }
  auto get = [&x]() -> const std::string& { return x.bytes(); };
  auto set = [&x](std::string bytes) { return x.assign(std::move(bytes)); };
  return f.apply(get, set);
}

} // namespace troupe::internal
