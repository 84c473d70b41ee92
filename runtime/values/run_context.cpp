#include "troupe/runtime/values/run_context.hpp"

#include <cctype>

#include "troupe/runtime/run_layout.hpp"

namespace troupe {

fs::path run_context::folder(std::string_view name) const {
  std::string safe{name};
  for (auto& c : safe)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.')
      c = '_';
  if (safe.empty() || safe.front() == '.')
    safe.insert(safe.begin(), '_');
  auto result = path / internal::run_layout::callbacks / safe;
  fs::create_directories(result);
  return result;
}

} // namespace troupe
