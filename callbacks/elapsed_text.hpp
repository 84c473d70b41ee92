#pragma once

#include <string>

namespace troupe {

/// Seconds as people read them: "4.2 s", "1:05", "2:00:09".
std::string elapsed_text(double seconds);

} // namespace troupe
