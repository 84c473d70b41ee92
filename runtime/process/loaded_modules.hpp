#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace troupe::internal {

/// The program, or a shared library, as it is in memory.
struct loaded_module {
  std::string path; ///< Empty for the program.
  std::uint64_t base = 0;
  std::string build_id; ///< In hexadecimal; empty if it was linked without.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> code; ///< From, to.

  bool has_code_at(std::uint64_t address) const;
};

/// Calls *visit* with each of this process, the program first, until it returns
/// false.
void visit_modules(const std::function<bool(loaded_module)>& visit);

/// The build ids of the shared libraries of CAF and LibTorch, by the names of
/// their files.
std::map<std::string, std::string> library_builds();

} // namespace troupe::internal
