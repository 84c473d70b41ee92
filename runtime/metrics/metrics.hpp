#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "troupe/runtime/error.hpp"

namespace troupe {

namespace internal {

/// A tensor of LibTorch, without its headers.
template <class T>
concept tensor_like = requires(const T& x) {
  x.item();
  x.numel();
  x.sizes();
};

} // namespace internal

/// What a text can be made of without a cast.
template <class T>
concept text_like = std::convertible_to<const T&, std::string_view>;

/// One reported value: a flag, an integer, a floating-point number (NaN and
/// infinities allowed) or a text. An unsigned integer above 2^63 - 1 becomes
/// the floating-point number next to it.
///
/// A tensor is refused at compile time: report `tensor.item<double>()`.
class metric_value {
public:
  using variant_type = std::variant<bool, std::int64_t, double, std::string>;

  metric_value() = default;

  template <std::same_as<bool> T>
  metric_value(T x) : value_(x) {}

  template <std::integral T>
    requires(!std::same_as<T, bool>)
  metric_value(T x) {
    value_ = static_cast<std::int64_t>(x);
    if (x > 0 && *std::get_if<std::int64_t>(&value_) < 0)
      value_ = static_cast<double>(x);
  }

  template <std::floating_point T>
  metric_value(T x) : value_(static_cast<double>(x)) {}

  template <text_like T>
  metric_value(const T& x) : value_(std::string{std::string_view{x}}) {}

  template <internal::tensor_like T>
  metric_value(const T&) {
    static_assert(!internal::tensor_like<T>,
                  "a tensor is not a metric: report its number, as in "
                  "tensor.item<double>()");
  }

  /// Whether this is a flag or a number; `number()` is then its value.
  bool is_number() const noexcept {
    return !std::holds_alternative<std::string>(value_);
  }

  /// The value as a number, a flag as 0 or 1; throws `std::invalid_argument`
  /// for a text.
  double number() const;

  const variant_type& variant() const noexcept { return value_; }

  /// Equal type and equal value; NaN equals NaN, so that metrics can be
  /// compared as stored.
  bool operator==(const metric_value& other) const noexcept;

  template <class Inspector>
  friend bool inspect(Inspector& f, metric_value& x) {
    if (f.has_human_readable_format())
      return f.object(x).fields(f.field("value", x.value_));
    std::string none;
    auto* own = std::get_if<std::string>(&x.value_);
    auto& text = own ? *own : none;
    auto kind = static_cast<std::uint8_t>(x.value_.index());
    auto bits = x.bits();
    auto get = [&kind] { return kind; };
    auto set = [&kind](std::uint8_t value) {
      kind = value;
      return value < std::variant_size_v<variant_type>;
    };
    if (!f.object(x).fields(f.field("kind", get, set), f.field("bits", bits),
                            f.field("text", text)))
      return false;
    if constexpr (Inspector::is_loading)
      x.set(kind, bits, std::move(text));
    return true;
  }

private:
  // How a number travels: CAF's own form of a double has no subnormal ones.
  std::uint64_t bits() const noexcept;
  void set(std::uint8_t kind, std::uint64_t bits, std::string text);

  variant_type value_;
};

/// As people read it: numbers with up to six significant digits, texts as they
/// are.
std::string to_string(const metric_value& x);

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
  double number() const;

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
  explicit metrics(map_type values) : values_(std::move(values)) {}

  /// For `values["loss"] = 0.3`, and to read what is there: a name that is not
  /// adds nothing, but throws `std::out_of_range`.
  metric_slot operator[](std::string name) & {
    return {*this, std::move(name)};
  }
  const metric_value& operator[](std::string_view name) const& {
    return at(name);
  }

  /// The value itself, of metrics that do not live on.
  metric_value operator[](std::string_view name) && { return at(name); }
  metric_value operator[](std::string_view name) const&& { return at(name); }

  /// The value called *name*; throws `std::out_of_range` that lists the names
  /// that exist, and which one is the nearest, if there is none.
  const metric_value& at(std::string_view name) const;

  /// The value called *name* or nullptr.
  const metric_value* find(std::string_view name) const;

  /// The number called *name*, a flag as 0 or 1; throws `std::out_of_range` if
  /// there is none, and `std::invalid_argument` for a text.
  double number(std::string_view name) const;

  /// The same if it is there and a number.
  std::optional<double> find_number(std::string_view name) const;

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

/// How a number differs between the ranks that reported it.
struct rank_spread {
  double mean = 0;
  double min = 0;
  double max = 0;
  double std = 0;        ///< Of the population, sqrt(sum (x - mean)^2 / count):
                         ///< the ranks are all there are. 0 for one rank.
  std::size_t count = 0; ///< Ranks that reported the number.

  bool operator==(const rank_spread&) const = default;
};

/// What *ranks* (as `user_callback::after_report` gets them) reported, by name.
///
/// A rank without the name, or with a text under it, is left out of it; a name
/// that no rank has a number for is left out altogether. Flags count as 0 and
/// 1. A NaN on any rank makes mean, min, max and std NaN, so that it cannot
/// hide behind the others. An infinity stays one in mean, min or max (NaN
/// between both infinities) and makes the std NaN.
std::map<std::string, rank_spread> aggregate(std::span<const metrics> ranks);

/// The same as metrics, ready to be written somewhere: `loss/mean`, `loss/min`,
/// `loss/max` and `loss/std`.
metrics aggregated_metrics(std::span<const metrics> ranks);

} // namespace troupe
