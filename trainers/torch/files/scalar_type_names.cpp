#include "troupe/trainers/torch/files/scalar_type_names.hpp"

#include <array>
#include <utility>

namespace troupe {

namespace {

using type = c10::ScalarType;

constexpr std::array<std::pair<type, const char*>, 18> names{
  {{type::Bool, "BOOL"},
   {type::Byte, "U8"},
   {type::Char, "I8"},
   {type::Short, "I16"},
   {type::UInt16, "U16"},
   {type::Int, "I32"},
   {type::UInt32, "U32"},
   {type::Long, "I64"},
   {type::UInt64, "U64"},
   {type::Half, "F16"},
   {type::BFloat16, "BF16"},
   {type::Float, "F32"},
   {type::Double, "F64"},
   {type::Float8_e5m2, "F8_E5M2"},
   {type::Float8_e4m3fn, "F8_E4M3"},
   {type::Float8_e8m0fnu, "F8_E8M0"},
   {type::Float8_e5m2fnuz, "F8_E5M2FNUZ"},
   {type::Float8_e4m3fnuz, "F8_E4M3FNUZ"}}};

} // namespace

std::optional<std::string> safetensors_name(c10::ScalarType type) {
  for (const auto& [known, name] : names)
    if (known == type)
      return name;
  return std::nullopt;
}

std::optional<c10::ScalarType> scalar_type(const std::string& name) {
  for (const auto& [type, known] : names)
    if (known == name)
      return type;
  return std::nullopt;
}

} // namespace troupe
