#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/runtime/config/scaling_config.hpp"
#include "troupe/runtime/error.hpp"

namespace troupe::internal {

/// Most bytes of a hosts file: `max_hosts` of the longest names.
inline constexpr std::size_t max_hosts_file = std::size_t{1} << 25;

/// A host that ranks may run on.
struct host_entry {
  std::string name;         ///< A name, or an address without brackets.
  std::optional<int> slots; ///< Most ranks there, if the list says so.

  bool operator==(const host_entry&) const = default;
};

/// Whether *text* is a host name, or an IPv4 or IPv6 address without brackets.
/// Such a text is neither an option of a program nor syntax of a shell.
bool is_host_name(std::string_view text) noexcept;

/// "\"a;b\" is not the name of a host", for one that `is_host_name` refuses.
std::string no_host_text(std::string_view text);

/// Whether *name*, a host name, is an address.
bool is_host_address(std::string_view name) noexcept;

/// Whether *a* and *b* may name the same host: equal but for the case, two
/// spellings of an address of IPv6, or one is the other's first labels, without
/// all or a part of its domain.
bool may_be_same_host(std::string_view a, std::string_view b) noexcept;

/// The hosts of a list such as `a,b`, `n[008-012,15],gpu-[1,3]` or
/// `fd00::1,[fd00::2]`, in the order in which Slurm expands its node lists. The
/// first bracket of a name turns slower than the last one; if there are more,
/// those before the last one turn from the left, as `scontrol show hostnames`
/// has it. Unlike that, takes text after a bracket: `n[1-4].example.org`.
///
/// `ec::invalid_config` if the list is empty, names a host twice or more than
/// `max_hosts`, or has a mistake; the sentence begins with *what* and has the
/// position.
expected<std::vector<std::string>> expand_host_list(std::string_view text,
                                                    std::string_view what);

/// The hosts of a file with one host per line: `NAME` or `NAME slots=N`, as in
/// the host files of MPI; `#` begins a comment. The lines of a host add up: its
/// slots, or one slot for each line, as batch systems write them.
///
/// `ec::invalid_config` with "<path>:<line>: <mistake>".
expected<std::vector<host_entry>> parse_hosts_file(std::string_view text,
                                                   std::string_view path);

/// The hosts of *value*, which *what* names in errors: a list as in
/// `expand_host_list`, or the path of a hosts file, if it has a slash.
/// `ec::storage` if that cannot be read; `ec::invalid_config` if it has none,
/// but the current folder has a file of that name.
expected<std::vector<host_entry>> hosts_of(const std::string& value,
                                           std::string_view what);

/// A short form of *names* for messages: "n1", "n1-n4", "a, b, c" or "a, b, c
/// and 7 more".
std::string to_short_text(const std::vector<std::string>& names);

} // namespace troupe::internal
