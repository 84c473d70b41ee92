#pragma once

#include <cstdint>
#include <span>

namespace troupe {

/// To be called in a catch block: throws a `train_error` that names the samples
/// *indices* and what the dataset threw, with the original exception nested in
/// it. A `run_stopped` passes unchanged.
[[noreturn]] void throw_dataset_error(std::span<const std::int64_t> indices);

} // namespace troupe
