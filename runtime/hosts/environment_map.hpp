#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "troupe/runtime/error.hpp"

namespace troupe::internal {

/// The variables of a process. Empty ones count as unset.
using environment_map = std::map<std::string, std::string, std::less<>>;

/// The variables of this process.
environment_map own_environment();

/// Reads single variables of a map.
class environment_reader {
public:
  explicit environment_reader(const environment_map& variables)
    : variables_(variables) {}

  std::optional<std::string_view> text_of(std::string_view name) const;

  /// A number from 0 to 4,294,967,295; `ec::invalid_config` names the variable
  /// if it is none.
  expected<std::optional<std::int64_t>> number_of(std::string_view name) const;

private:
  const environment_map& variables_;
};

} // namespace troupe::internal
