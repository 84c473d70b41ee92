#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/actors/door/certificates.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe::internal {

/// What an agent needs to reach the driver of a run and to prove itself.
///
/// It holds a key, so it travels by standard input or a closed file only: other
/// users see the arguments of a program, and children inherit its environment.
struct ticket {
  std::vector<std::string> addresses; ///< Of the driver: numbers or host names.
  std::uint16_t port = 0;
  std::string run;
  credentials own;
};

/// Larger texts are not read. A ticket with one address has 1.3 KB.
inline constexpr std::size_t max_ticket_size = std::size_t{16} * 1024;

inline constexpr std::size_t max_ticket_addresses = 32;

/// *x* as text: a line for each field and "end", which shows readers of a pipe
/// that it is whole.
secret_bytes encode(const ticket& x);

/// The ticket in *text*, which must be exactly as `encode` writes it;
/// `ec::corrupt` names the mistake. Its certificate must be that of an agent of
/// its run, or of *role*.
expected<ticket> parse_ticket(std::string_view text,
                              host_role role = host_role::agent);

/// Reads the text of a ticket from *fd*, up to its last line or the end of the
/// input; `ec::timeout` if it is not whole within *limit*, `ec::stopped` if
/// nothing is there and the descriptor *stop* is readable; -1: none.
expected<secret_bytes> read_ticket_text(int fd, std::chrono::milliseconds limit,
                                        int stop = -1);

/// Reads a ticket from *fd* in the same way; `ec::corrupt` if that is none.
expected<ticket> read_ticket(int fd, std::chrono::milliseconds limit,
                             host_role role = host_role::agent);

/// The ticket in the file at *path*, which may be reached through links, as the
/// files of a mounted secret are.
///
/// Fails with `ec::invalid_config` unless the file belongs to this user, with
/// mode 0600 or 0400, or to root, who may let a group read it, as a mounted
/// secret does.
expected<ticket> read_ticket_file(const fs::path& path,
                                  host_role role = host_role::agent);

/// Whether a ticket may replace what is at *path*: nothing, an empty file or
/// another ticket. Not a link, which would be replaced, too.
expected<bool> is_place_for_ticket(const fs::path& path);

/// The addresses of this host that others may reach: all of its interfaces
/// that are up, IPv4 first; those of the loopback if there is no other. Without
/// link-local addresses of IPv6, which mean something else on each host.
expected<std::vector<std::string>> host_addresses();

} // namespace troupe::internal
