#pragma once

#include <cstdint>

namespace troupe {

/// Which part of a dataset.
enum class split : std::uint8_t { train, test };

} // namespace troupe
