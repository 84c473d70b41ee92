#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "troupe/runtime/each_field.hpp"
#include "troupe/runtime/error.hpp"

namespace troupe::internal {

/// Names a function independent of load addresses, for all processes of the
/// same program.
struct function_address {
  /// The shared library's path; empty for the program itself.
  std::string module;

  /// Bytes from the module's load address.
  std::uint64_t offset = 0;

  /// The module's GNU build id in hexadecimal; empty if it was linked without.
  std::string build_id;

  bool operator==(const function_address&) const = default;
};

TROUPE_INSPECT(function_address, module, offset, build_id)

/// Finds the module of *fn*; `ec::invalid_config` if no loaded module has it.
/// Errors call the function *what*.
expected<function_address> locate(const void* fn,
                                  std::string_view what = "the train loop");

/// The GNU build id of the running program in hexadecimal; empty if it was
/// linked without.
std::string program_build_id();

/// Finds the function in this process and loads its module if necessary;
/// `ec::invalid_config` if the module is missing, was built differently (names
/// the module and both build ids), or has no code there.
expected<const void*> resolve(const function_address& address,
                              std::string_view what = "the train loop");

} // namespace troupe::internal
