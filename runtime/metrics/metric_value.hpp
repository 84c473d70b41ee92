#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace troupe {

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

  /// Whether this is a flag or a number; `number()` is then its value.
  bool is_number() const noexcept {
    return !std::holds_alternative<std::string>(value_);
  }

  /// The value as a number; NaN for a text.
  double number() const noexcept;

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

} // namespace troupe
