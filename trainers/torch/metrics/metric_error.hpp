#pragma once

#include <string>

#include "troupe/trainers/train_context.hpp"

namespace troupe {

/// Refuses what a caller of the metric called *name* has asked for: throws
/// `train_error` with "name: sentence".
[[noreturn]] void refuse_metric(const std::string& name,
                                const std::string& sentence);

/// Tells people, through LibTorch's warnings, that a value of the metric called
/// *name* may surprise them.
void warn_metric(const std::string& name, const std::string& sentence);

} // namespace troupe
