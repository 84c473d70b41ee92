#pragma once

#include <stdexcept>
#include <string>

namespace troupe::internal::bench {

/// Why this machine cannot take a measurement: something is not installed, or
/// not allowed.
class skipped : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

/// Takes all measurements of this program, or those that its arguments name,
/// and prints them as a table. Returns the exit code.
int run_program(int argc, char** argv, const std::string& name);

} // namespace troupe::internal::bench
