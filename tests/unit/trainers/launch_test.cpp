#include "troupe/trainers/launch.hpp"

#include <vector>

#include <gmock/gmock.h>

namespace troupe::internal::test {
namespace {

using testing::HasSubstr;

expected<launch_arguments> read(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "train");
  arguments.push_back(nullptr);
  return read_launch_arguments(static_cast<int>(arguments.size()) - 1,
                               arguments.data());
}

std::string mistake_in(std::vector<const char*> arguments) {
  auto result = read(std::move(arguments));
  return result ? "none" : result.error().message;
}

} // namespace

TEST(launch_arguments_test, are_found_among_those_of_the_program) {
  EXPECT_EQ(read({"--lr", "1", "--hosts", "a,b"})->hosts, "a,b");
  EXPECT_EQ(read({"--hosts=a,b", "x"})->hosts, "a,b");
  EXPECT_FALSE(read({"--lr"})->node_agent);
  EXPECT_TRUE(read({"--node-agent"})->node_agent);
  EXPECT_EQ(read({"--node-agent"})->launch, 0u);
  EXPECT_EQ(read({"--node-agent=7"})->launch, 7u);
  EXPECT_EQ(read({"--make-tickets", "t"})->tickets, "t");
  EXPECT_EQ(read({"--", "--hosts", "a"})->hosts, "");
  EXPECT_EQ(read({"--hosts-of-mine", "a"})->hosts, "");
}

TEST(launch_arguments_test, with_mistakes_are_refused) {
  EXPECT_THAT(mistake_in({"--hosts"}), HasSubstr("--hosts needs a list"));
  EXPECT_THAT(mistake_in({"--make-tickets"}), HasSubstr("needs a folder"));
  EXPECT_THAT(mistake_in({"--hosts="}), HasSubstr("--hosts needs a list"));
  EXPECT_THAT(mistake_in({"--hosts", "a", "--hosts=b"}), HasSubstr("twice"));
  EXPECT_THAT(mistake_in({"--make-tickets=t", "--make-tickets", "u"}),
              HasSubstr("--make-tickets is given twice"));
  for (auto x : {"--node-agent=", "--node-agent=x", "--node-agent=0"})
    EXPECT_THAT(mistake_in({x}), HasSubstr("a driver passes"));
}

} // namespace troupe::internal::test
