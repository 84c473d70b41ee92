#include "troupe/runtime/hosts/network_addresses.hpp"

#include <gmock/gmock.h>

namespace troupe::internal {

namespace {

using testing::Contains;
using testing::HasSubstr;

const std::vector<network_address> two_cards{
  {"lo", "127.0.0.1", true},    {"eth0", "192.168.1.7", false},
  {"eth1", "10.1.9.7", false},  {"lo", "::1", true},
  {"eth1", "fd00:1::7", false},
};

std::string found(const std::string& wanted) {
  auto result = find_address(two_cards, wanted);
  return result ? result->interface + ' ' + result->address
                : result.error().message;
}

TEST(network_addresses_test, finds_an_interface_by_its_name) {
  EXPECT_EQ(found("eth0"), "eth0 192.168.1.7");
  EXPECT_EQ(found("eth1"), "eth1 10.1.9.7");
}

TEST(network_addresses_test, finds_an_address) {
  EXPECT_EQ(found("10.1.9.7"), "eth1 10.1.9.7");
  EXPECT_EQ(found("fd00:1:0::7"), "eth1 fd00:1::7");
}

TEST(network_addresses_test, finds_what_is_in_a_network) {
  EXPECT_EQ(found("10.1.0.0/16"), "eth1 10.1.9.7");
  EXPECT_EQ(found("192.168.1.0/29"), "eth0 192.168.1.7");
  EXPECT_EQ(found("fd00::/15"), "eth1 fd00:1::7");
  EXPECT_EQ(found("::/0"), "lo ::1") << "IPv6 only";
  EXPECT_EQ(find_address(two_cards, "192.168.1.8/29").error().code,
            ec::invalid_config);
}

TEST(network_addresses_test, says_what_there_is_instead) {
  for (auto wanted : {"eth", "ib0", "10.2.0.0/16", "10.1.0.0/33", "10.1.0.0/",
                      "10.1.0.0/1x", "", "10.1.9"}) {
    auto result = find_address(two_cards, wanted);
    ASSERT_FALSE(result) << wanted;
    EXPECT_EQ(result.error().code, ec::invalid_config);
  }
  EXPECT_EQ(found("ib0"), "this host has no network interface or address ib0; "
                          "it has lo (127.0.0.1), eth0 (192.168.1.7), eth1 "
                          "(10.1.9.7), lo (::1), eth1 (fd00:1::7)");
  EXPECT_THAT(find_address({}, "ib0").error().message,
              HasSubstr("it has none"));
}

TEST(network_addresses_test, knows_the_names_of_this_host) {
  EXPECT_THAT(own_host_names(), Contains("localhost"));
  EXPECT_THAT(own_host_names(), Contains("127.0.0.1"));
}

TEST(network_addresses_test, knows_the_loopback_of_this_host) {
  auto own = find_own_address("127.0.0.1");
  ASSERT_TRUE(own) << own.error().message;
  EXPECT_TRUE(own->is_loopback);
}

} // namespace

} // namespace troupe::internal
