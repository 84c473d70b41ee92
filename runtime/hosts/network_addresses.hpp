#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "troupe/runtime/error.hpp"

namespace troupe::internal {

/// An address of this host.
struct network_address {
  std::string interface; ///< Its name, such as "eth0".
  std::string address;   ///< A number, IPv4 or IPv6.
  bool is_loopback = false;
};

/// The addresses of all interfaces that are up, IPv4 first. Without link-local
/// addresses of IPv6, which mean something else on each host.
expected<std::vector<network_address>> own_addresses();

/// "localhost", and the name and the addresses of this host.
std::vector<std::string> own_host_names();

/// The first of *all* that *wanted* stands for: the name of an interface, an
/// address, or a network such as "10.1.0.0/16". `ec::invalid_config` says what
/// there is.
expected<network_address> find_address(const std::vector<network_address>& all,
                                       const std::string& wanted);

/// The same among those of this host.
expected<network_address> find_own_address(const std::string& wanted);

/// Ends the error of ranks whose host does not have the address by which agents
/// reached it: it was translated on the way.
inline constexpr std::string_view other_network_hint =
  "; scaling.network_interface chooses another network";

} // namespace troupe::internal
