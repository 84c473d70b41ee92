#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal {

/// What to change in one environment to get another.
struct environment_changes {
  std::vector<std::pair<std::string, std::string>> set; ///< By name.
  std::vector<std::string> removed;                     ///< By name.

  bool operator==(const environment_changes&) const = default;
};

/// From the variables *before* to those *after*, each "name=value". Of a name
/// that is there twice, the first one counts, as for `getenv`.
environment_changes changes_between(const std::vector<std::string>& before,
                                    const std::vector<std::string>& after);

/// The variables of this process, each "name=value". Like `getenv`, not for
/// when another thread changes them.
std::vector<std::string> own_variables();

/// What the ranks of one run inherit from the program: what it has when the run
/// starts. A spawner has what the program had when it called `troupe::init`, or
/// what it has when a spawner is lost; without this, the attempts of one run
/// could differ.
struct inheritance {
  std::vector<std::string> environment; ///< All variables of the program.

  /// From the variables of its spawners to these. What ranks do not get,
  /// secrets and the addresses of trackers, counts as removed.
  environment_changes variables;

  /// The current folder; empty: the program may not enter it itself, and ranks
  /// stay where the spawner is.
  unique_fd folder;

  std::optional<mode_t> umask; ///< Unset: this system does not show it.

  /// The program's value of the variable *name*; unset: it has none.
  std::optional<std::string_view> find(std::string_view name) const noexcept;

  bool has(std::string_view name) const noexcept {
    return find(name).has_value();
  }
};

/// What ranks inherit now, from spawners that have *variables*.
expected<std::shared_ptr<const inheritance>>
inherit(const std::vector<std::string>& variables);

} // namespace troupe::internal
