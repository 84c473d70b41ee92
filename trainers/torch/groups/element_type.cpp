#include "troupe/trainers/torch/groups/element_type.hpp"

namespace troupe {

std::optional<element_type> element_type_of(at::ScalarType type) noexcept {
  switch (type) {
    case at::kFloat:
      return element_type::float32;
    case at::kDouble:
      return element_type::float64;
    case at::kHalf:
      return element_type::float16;
    case at::kBFloat16:
      return element_type::bfloat16;
    case at::kChar:
      return element_type::int8;
    case at::kByte:
      return element_type::uint8;
    case at::kShort:
      return element_type::int16;
    case at::kInt:
      return element_type::int32;
    case at::kLong:
      return element_type::int64;
    case at::kBool:
      return element_type::boolean;
    default:
      return std::nullopt;
  }
}

std::size_t size_of(element_type type) noexcept {
  switch (type) {
    case element_type::float64:
    case element_type::int64:
      return 8;
    case element_type::float32:
    case element_type::int32:
      return 4;
    case element_type::float16:
    case element_type::bfloat16:
    case element_type::int16:
      return 2;
    default:
      return 1;
  }
}

} // namespace troupe
