#include "troupe/runtime/hosts/network_addresses.hpp"

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/processes.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/whole_number.hpp"

namespace troupe::internal {

namespace {

/// Empty if there is none.
std::string numeric_address(const sockaddr& address) {
  socklen_t size =
    address.sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  char text[NI_MAXHOST];
  if (::getnameinfo(&address, size, text, sizeof(text), nullptr, 0,
                    NI_NUMERICHOST)
      != 0)
    return {};
  return text;
}

bool is_local_to_link(const sockaddr& address) {
  return address.sa_family == AF_INET6
         && IN6_IS_ADDR_LINKLOCAL(
           &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

/// The first *length* bits of an address.
struct network {
  int family = AF_UNSPEC;
  std::array<unsigned char, 16> bytes{};
  int length = 0;

  bool has(const network& x) const {
    if (x.family != family)
      return false;
    auto is_same = [&](int bit) {
      auto at = static_cast<std::size_t>(bit / 8);
      return (((bytes[at] ^ x.bytes[at]) >> (7 - bit % 8)) & 1) == 0;
    };
    for (int bit = 0; bit < length; ++bit)
      if (!is_same(bit))
        return false;
    return true;
  }
};

/// *text* is an address, or a network: "10.1.0.0/16".
std::optional<network> parse_network(const std::string& text) {
  network result;
  auto slash = text.find('/');
  auto address = text.substr(0, slash);
  result.family = address.find(':') == address.npos ? AF_INET : AF_INET6;
  if (::inet_pton(result.family, address.c_str(), result.bytes.data()) != 1)
    return std::nullopt;
  auto bits = result.family == AF_INET ? 32 : 128;
  result.length = bits;
  if (slash == text.npos)
    return result;
  auto length = whole_number<int>(std::string_view{text}.substr(slash + 1));
  if (!length || *length < 0 || *length > bits)
    return std::nullopt;
  result.length = *length;
  return result;
}

std::string list_of(const std::vector<network_address>& all) {
  return joined(all, ", ", [](auto& x) {
    return concat(x.interface, " (", x.address, ")");
  });
}

} // namespace

expected<std::vector<network_address>> own_addresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0)
    return system_failure(ec::unsupported,
                          "this host does not show its addresses");
  std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner{list,
                                                           &::freeifaddrs};
  std::vector<network_address> result;
  for (auto family : {AF_INET, AF_INET6})
    for (auto* i = list; i != nullptr; i = i->ifa_next)
      if (i->ifa_addr != nullptr && i->ifa_addr->sa_family == family
          && (i->ifa_flags & IFF_UP) != 0 && !is_local_to_link(*i->ifa_addr))
        if (auto text = numeric_address(*i->ifa_addr); !text.empty())
          result.push_back(
            {i->ifa_name, std::move(text), (i->ifa_flags & IFF_LOOPBACK) != 0});
  return result;
}

std::vector<std::string> own_host_names() {
  std::vector<std::string> result{"localhost", own_host_name()};
  auto all = own_addresses();
  for (auto& x : all ? *all : std::vector<network_address>{})
    result.push_back(x.address);
  return result;
}

expected<network_address> find_address(const std::vector<network_address>& all,
                                       const std::string& wanted) {
  auto range = parse_network(wanted);
  for (auto& x : all)
    if (range ? range->has(parse_network(x.address).value_or(network{}))
              : x.interface == wanted)
      return x;
  return failure(ec::invalid_config,
                 concat("this host has no network interface or address ",
                        wanted, "; it has ",
                        all.empty() ? "none" : list_of(all)));
}

expected<network_address> find_own_address(const std::string& wanted) {
  TROUPE_TRY(auto all, own_addresses());
  return find_address(all, wanted);
}

} // namespace troupe::internal
