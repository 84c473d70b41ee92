#include "troupe/callbacks/elapsed_text.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

namespace troupe {

std::string elapsed_text(double seconds) {
  std::array<char, 48> text{};
  // In tenths, cut off and not rounded, so that no minute has 60.0 s.
  auto tenths = static_cast<long long>(std::max(seconds, 0.0) * 10);
  auto whole = tenths / 10;
  if (whole < 60)
    std::snprintf(text.data(), text.size(), "%lld.%lld s", whole, tenths % 10);
  else if (whole < 3600)
    std::snprintf(text.data(), text.size(), "%lld:%02lld", whole / 60,
                  whole % 60);
  else
    std::snprintf(text.data(), text.size(), "%lld:%02lld:%02lld", whole / 3600,
                  whole / 60 % 60, whole % 60);
  return text.data();
}

} // namespace troupe
