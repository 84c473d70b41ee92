#pragma once

namespace troupe {

/// What percentages divide by at least, as TorchMetrics does (1.17e-06): an
/// error at a target of zero is huge, not infinite.
inline constexpr double smallest_divisor = 1.17e-6;

} // namespace troupe
