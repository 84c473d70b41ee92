#pragma once

#include <optional>
#include <string>

#include <c10/core/ScalarType.h>

namespace troupe {

/// How the safetensors format spells *type*; nothing for a type that it lacks.
std::optional<std::string> safetensors_name(c10::ScalarType type);

/// The inverse of `safetensors_name`.
std::optional<c10::ScalarType> scalar_type(const std::string& name);

} // namespace troupe
