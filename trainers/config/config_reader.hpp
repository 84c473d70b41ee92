#pragma once

#include <string>
#include <vector>

#include "troupe/runtime/fs.hpp"
#include "troupe/trainers/config/config_options.hpp"

/// Values of a config from files, variables and options. Errors begin with the
/// place that a value was read from.

namespace troupe::internal {

/// *text*, a value of shape *x* as it is written on a command line.
expected<config_value> value_from_text(const config_shape& x,
                                       const std::string& where,
                                       const std::string& text);

/// Replaces the *values* of a group that the JSON file at *path* mentions.
expected<void> read_file_into(const config_shape& shape, config_value& values,
                              const fs::path& path);

/// Replaces the values that *environment* (as `environ`, may be null) has in
/// variables that begin with *prefix*. Without a prefix nothing is read.
expected<void> read_environment_into(const std::vector<config_option>& all,
                                     const char* const* environment,
                                     const std::string& prefix);

} // namespace troupe::internal
