#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "troupe/trainers/config/config_value.hpp"

/// The fields of a config as options: how they are called, what they take, and
/// the help that lists them.

namespace troupe::internal {

/// A field that an option or a variable can name.
struct config_option {
  std::string name; ///< As `optimizer.lr`.
  const config_shape* shape;
  config_value* value;
};

/// The fields of a group of shape *shape*, those of its groups among them, with
/// their places in *values*.
std::vector<config_option> options_of(const config_shape& shape,
                                      config_value& values);

/// Throws for names that two fields would share.
void check_names(const std::vector<config_option>& all);

std::vector<std::string_view> names_of(const std::vector<config_option>& all);

/// The name of the field *inner* of *outer*.
std::string dotted(const std::string& outer, const std::string& inner);

/// The variable for the field *name*: `PREFIX_OPTIMIZER__LR`.
std::string variable_of(const std::string& prefix, const std::string& name);

/// What a value of shape *x* is, as `list of integer`.
std::string type_text(const config_shape& x);

/// What `--help` shows. *about* and *environment* are those of `parse_options`.
std::string help_text(std::vector<config_option> all, std::string_view program,
                      const std::string& about, const std::string& environment);

} // namespace troupe::internal
