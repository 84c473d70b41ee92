#pragma once

namespace troupe {

/// What a learning-rate schedule counts.
enum class schedule_interval { epoch, step };

} // namespace troupe
