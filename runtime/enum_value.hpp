#pragma once

#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

namespace troupe::internal {

/// Gives the `inspect` of an enum a number to read.
class enum_reader {
public:
  explicit enum_reader(std::uint64_t number) noexcept : number_(number) {}

  template <class Get, class Set>
  bool apply(Get /*get*/, Set set) const {
    using number = std::invoke_result_t<Get>;
    return std::in_range<number>(number_) && set(static_cast<number>(number_));
  }

private:
  std::uint64_t number_;
};

/// The value of *Enum*, which travels in messages, whose number is *number*;
/// nothing if its `inspect` refuses that.
template <class Enum>
std::optional<Enum> enum_value(std::uint64_t number) {
  enum_reader reader{number};
  Enum result{};
  return inspect(reader, result) ? std::optional{result} : std::nullopt;
}

} // namespace troupe::internal
