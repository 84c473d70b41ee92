#include "troupe/runtime/hosts/host_list.hpp"

#include <cstdio>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/mentions.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {
namespace {

using test::mentions;
using testing::ElementsAre;

using names = std::vector<std::string>;

names expanded(std::string_view text) {
  auto result = expand_host_list(text, "the list");
  EXPECT_TRUE(result) << result.error().message;
  return result.value_or(names{});
}

/// The sentence with which *text* is refused, without the text.
std::string refusal(std::string_view text) {
  auto result = expand_host_list(text, "the list");
  if (result)
    return "taken";
  EXPECT_EQ(result.error().code, ec::invalid_config);
  const auto& sentence = result.error().message;
  auto begin = sentence.find("\": ");
  return begin == sentence.npos ? sentence : sentence.substr(begin + 3);
}

// What `scontrol show hostnames` of Slurm 22.05 prints.
TEST(host_list_test, expands_the_node_lists_of_slurm_as_scontrol_does) {
  const std::map<std::string, names> cases{
    {"h1", {"h1"}},
    {"login", {"login"}},
    {"h[1-4]", {"h1", "h2", "h3", "h4"}},
    {"h[01-03,07]", {"h01", "h02", "h03", "h07"}},
    {"n[008-012],gpu-[1,3]",
     {"n008", "n009", "n010", "n011", "n012", "gpu-1", "gpu-3"}},
    {"rack[0-1]node[3-4]",
     {"rack0node3", "rack0node4", "rack1node3", "rack1node4"}},
    {"a,b[2-3],c", {"a", "b2", "b3", "c"}},
    {"cn-[0998-1002]", {"cn-0998", "cn-0999", "cn-1000", "cn-1001", "cn-1002"}},
    {"n[9-11]", {"n9", "n10", "n11"}},
    {"x[1-2,5-6],y7", {"x1", "x2", "x5", "x6", "y7"}},
    {"n[00-02]s[1-2,4]",
     {"n00s1", "n00s2", "n00s4", "n01s1", "n01s2", "n01s4", "n02s1", "n02s2",
      "n02s4"}},
    {"n[1-2][3-4]", {"n13", "n14", "n23", "n24"}},
    {"n[8-012]", {"n8", "n9", "n10", "n11", "n12"}},
    {"n[01-2,1-2]", {"n01", "n02", "n1", "n2"}},
    {"[1-3]", {"1", "2", "3"}},
    {"a, b", {"a", "b"}},
    {"n[0-1]x[0-1]y[0-1]",
     {"n0x0y0", "n0x0y1", "n1x0y0", "n1x0y1", "n0x1y0", "n0x1y1", "n1x1y0",
      "n1x1y1"}},
    {"a[0-2]b[0,2]c[0-1]",
     {"a0b0c0", "a0b0c1", "a1b0c0", "a1b0c1", "a2b0c0", "a2b0c1", "a0b2c0",
      "a0b2c1", "a1b2c0", "a1b2c1", "a2b2c0", "a2b2c1"}},
  };
  for (const auto& [text, hosts] : cases)
    EXPECT_EQ(expanded(text), hosts) << text;
}

// If this host has Slurm's client, it is asked about the same lists.
TEST(host_list_test, agrees_with_the_scontrol_of_this_host) {
  auto output_of = [](const std::string& text) {
    names result;
    auto command = "scontrol show hostnames '" + text + "' 2>/dev/null";
    auto* pipe = ::popen(command.c_str(), "r");
    std::string line;
    for (int c = 0; pipe && (c = std::fgetc(pipe)) != EOF;)
      if (c == '\n')
        result.push_back(std::exchange(line, {}));
      else
        line += static_cast<char>(c);
    if (pipe)
      ::pclose(pipe);
    return result;
  };
  if (output_of("a[1-2]").size() != 2)
    GTEST_SKIP() << "scontrol is not installed, or has no configuration";
  for (std::string text :
       {"n[008-012],gpu-[1,3]", "r[0-1]n[3-4]", "n[8-012]", "n[9-101]",
        "a[0-1]b[0-2]c[0-1]d[7,9]", "x,y[1-2][1-2],z", "n[0-65535]"})
    EXPECT_EQ(expanded(text), output_of(text)) << text;
}

TEST(host_list_test, takes_text_after_a_bracket) {
  EXPECT_THAT(expanded("n[1-2].example.org"),
              ElementsAre("n1.example.org", "n2.example.org"));
}

TEST(host_list_test, takes_addresses_with_and_without_brackets) {
  EXPECT_THAT(expanded("10.0.0.[7-8],fd00::1,[fd00::2] , [fe80::1%eth0],::1"),
              ElementsAre("10.0.0.7", "10.0.0.8", "fd00::1", "fd00::2",
                          "fe80::1%eth0", "::1"));
}

TEST(host_list_test, refuses_a_list_with_a_mistake_and_says_where) {
  EXPECT_EQ(refusal(""), "the list: no host is named");
  EXPECT_EQ(refusal(" "), "the list: no host is named");
  EXPECT_EQ(refusal("a,,b"), "at character 3: a host is missing");
  EXPECT_EQ(refusal("a,"), "at character 3: a host is missing");
  EXPECT_EQ(refusal("a b"),
            "at character 3: a comma is missing between two hosts");
  EXPECT_EQ(refusal("n[3-1]"),
            "at character 3: the range ends before it begins");
  EXPECT_EQ(refusal("n[]"), "at character 3: a number is expected");
  EXPECT_EQ(refusal("n[1-]"), "at character 5: a number is expected");
  EXPECT_EQ(refusal("n[1,,2]"), "at character 5: a number is expected");
  EXPECT_EQ(refusal("n[-1]"), "at character 3: a number is expected");
  EXPECT_EQ(refusal("a,n[1-2"), "at character 4: this bracket is not closed");
  EXPECT_EQ(refusal("n1-2]"), "at character 5: this bracket was not opened");
  EXPECT_EQ(refusal("n[1-2:2]"),
            "at character 6: a comma or a closing bracket is expected");
  EXPECT_EQ(refusal("n[[1]]"), "at character 3: a number is expected");
  EXPECT_EQ(refusal("n[99999999999999999999]"),
            "at character 3: the number is too large");
  EXPECT_EQ(refusal("a,n[1-3],n2"), "at character 10: host n2 is named twice");
}

TEST(host_list_test, refuses_names_that_a_program_or_shell_would_misread) {
  for (auto name : {"-oProxyCommand=x", "a;b", "$(id)", "a'b", "a|b", "`x`",
                    "user@host", "a\\b", "a..b", ".a", "a\tb", "a\nb", "é"}) {
    EXPECT_FALSE(is_host_name(name)) << name;
    EXPECT_FALSE(expand_host_list(name, "the list")) << name;
  }
  EXPECT_FALSE(is_host_name(""));
  EXPECT_FALSE(is_host_name(std::string(254, 'a')));
  EXPECT_TRUE(is_host_name(std::string(253, 'a')));
  EXPECT_EQ(refusal("x,a:22"), "at character 3: \"a:22\" is not an address of "
                               "IPv6, and a host has no port here; slots are "
                               "for a file of hosts, as in \"a slots=2\"");
  EXPECT_EQ(refusal("me@a"), "at character 1: \"me@a\" is not the name of a "
                             "host: give its user in ~/.ssh/config");
  EXPECT_FALSE(is_host_name("fd00::1%"));
  EXPECT_FALSE(is_host_name("fd00::1%a b"));
  EXPECT_FALSE(is_host_name("fd00:::1"));
}

TEST(host_list_test, is_bounded) {
  EXPECT_EQ(expanded("n[0-65535]").size(), max_hosts);
  auto too_many = "these are more than 65536 hosts";
  EXPECT_EQ(refusal("n[0-65536]"), concat("at character 3: ", too_many));
  EXPECT_EQ(refusal("n[0-999999999]"), concat("at character 3: ", too_many));
  EXPECT_EQ(refusal("n[0-9000000000000000000]"),
            concat("at character 3: ", too_many));
  EXPECT_EQ(refusal("n[0-999]m[0-999]"), concat("at character 1: ", too_many));
  EXPECT_EQ(refusal("n[0-65535],m"), concat("at character 12: ", too_many));
  std::string many = "n";
  for (int i = 0; i < 40; ++i)
    many += "[0-9]";
  EXPECT_EQ(refusal(many), concat("at character 1: ", too_many));
}

TEST(host_list_test, reads_a_hosts_file) {
  auto hosts = parse_hosts_file("# two racks\n"
                                "a slots=4 # the first\r\n"
                                "\n"
                                "  b.example.org\t\n"
                                "[fd00::1] slots=2\n"
                                "10.0.0.7",
                                "hosts");
  ASSERT_TRUE(hosts) << hosts.error().message;
  EXPECT_THAT(*hosts, ElementsAre(host_entry{"a", 4},
                                  host_entry{"b.example.org", std::nullopt},
                                  host_entry{"fd00::1", 2},
                                  host_entry{"10.0.0.7", std::nullopt}));
}

TEST(host_list_test, adds_up_the_lines_of_a_host) {
  auto hosts = parse_hosts_file("a\nb slots=2\na\nb slots=3\na\n", "hosts");
  ASSERT_TRUE(hosts) << hosts.error().message;
  EXPECT_THAT(*hosts, ElementsAre(host_entry{"a", 3}, host_entry{"b", 5}));
}

TEST(host_list_test, names_the_line_of_a_mistake_in_a_hosts_file) {
  auto mistake = [](std::string_view text) {
    auto hosts = parse_hosts_file(text, "my/hosts");
    return hosts ? "taken" : hosts.error().message;
  };
  EXPECT_EQ(mistake("# none\n"), "my/hosts: no host is named");
  EXPECT_EQ(mistake("a\n\n-b\n"),
            "my/hosts:3: \"-b\" is not the name of a host");
  EXPECT_EQ(mistake("a:4"), "my/hosts:1: \"a:4\" is not the name of a host");
  EXPECT_EQ(mistake("a slots=0"),
            "my/hosts:1: \"slots=0\": slots are a number from 1 on");
  EXPECT_EQ(mistake("a slots=4x"),
            "my/hosts:1: \"slots=4x\": slots are a number from 1 on");
  EXPECT_EQ(mistake("a port=1"),
            "my/hosts:1: \"port=1\": after the host, only slots=N may follow");
  EXPECT_EQ(mistake("a slots=2147483647\na"),
            "my/hosts:2: host a has too many slots");
}

TEST(host_list_test, takes_a_list_or_the_path_of_a_file) {
  auto list = hosts_of("a[1-2]", "--hosts");
  ASSERT_TRUE(list);
  EXPECT_THAT(*list, ElementsAre(host_entry{"a1", {}}, host_entry{"a2", {}}));
  test::temporary_folder folder;
  test::write_bytes(folder / "hosts", "a slots=2\nb\n");
  auto file = hosts_of((folder / "hosts").string(), "--hosts");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_THAT(*file, ElementsAre(host_entry{"a", 2}, host_entry{"b", {}}));
  auto missing = hosts_of((folder / "none").string(), "--hosts");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ec::storage);
  EXPECT_TRUE(mentions(missing.error(), "No such file"));
  auto folder_itself = hosts_of(folder.path().string() + "/", "--hosts");
  ASSERT_FALSE(folder_itself);
  EXPECT_EQ(folder_itself.error().code, ec::storage);
}

// The path of one that is not called so is the name of a host.
TEST(host_list_test, does_not_take_a_file_of_this_folder_for_a_host) {
  test::temporary_folder folder;
  auto before = fs::current_path();
  fs::current_path(folder.path());
  test::write_bytes("hosts.txt", "a\nb\n");
  auto bare = hosts_of("hosts.txt", "the hosts");
  auto path = hosts_of("./hosts.txt", "the hosts");
  auto list = hosts_of("hosts.txt,a", "the hosts");
  auto other = hosts_of("hosts.tx", "the hosts");
  fs::current_path(before);
  ASSERT_FALSE(bare);
  EXPECT_EQ(bare.error().code, ec::invalid_config);
  EXPECT_EQ(bare.error().message,
            "the hosts \"hosts.txt\": this folder has a file of that name: "
            "write ./hosts.txt for the hosts that it names, or start in "
            "another folder if a host is called so");
  ASSERT_TRUE(path);
  EXPECT_THAT(*path, ElementsAre(host_entry{"a", {}}, host_entry{"b", {}}));
  EXPECT_TRUE(list);
  EXPECT_TRUE(other);
}

TEST(host_list_test, compares_names_with_and_without_a_domain) {
  EXPECT_TRUE(may_be_same_host("n1", "N1"));
  EXPECT_TRUE(may_be_same_host("n1", "n1.example.org"));
  EXPECT_TRUE(may_be_same_host("N1.a.example.org", "n1.a"));
  EXPECT_FALSE(may_be_same_host("n1.a.org", "n1.b.org"));
  EXPECT_FALSE(may_be_same_host("n1.a", "n1.ab.org"));
  EXPECT_FALSE(may_be_same_host("10.0", "10.0.0.1"));
  EXPECT_FALSE(may_be_same_host("n1", "n2"));
  EXPECT_FALSE(may_be_same_host("10", "10.0.0.1"));
  EXPECT_TRUE(may_be_same_host("fd00::A", "fd00::a"));
  EXPECT_TRUE(may_be_same_host("fd00:0:0::a", "fd00::a"));
  EXPECT_FALSE(may_be_same_host("fd00::a", "fd00::b"));
  EXPECT_TRUE(may_be_same_host("fe80:0::a%eth0", "fe80::a%eth0"));
  EXPECT_FALSE(may_be_same_host("fe80:0::a%eth0", "fe80::a%eth1"));
  EXPECT_FALSE(may_be_same_host("fd00::a", "n1"));
}

TEST(host_list_test, shortens_lists_for_messages) {
  EXPECT_EQ(to_short_text({}), "none");
  EXPECT_EQ(to_short_text({"n1"}), "n1");
  EXPECT_EQ(to_short_text({"n1", "n2"}), "n1, n2");
  EXPECT_EQ(to_short_text({"n09", "n10", "n11"}), "n09-n11");
  EXPECT_EQ(to_short_text({"n1", "n3", "n4"}), "n1, n3, n4");
  EXPECT_EQ(to_short_text({"a", "b", "c", "d"}), "a, b, c, d");
  EXPECT_EQ(to_short_text({"a", "b", "c", "d", "e"}), "a, b, c and 2 more");
}

} // namespace
} // namespace troupe::internal
