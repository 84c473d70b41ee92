#include "troupe/callbacks/wandb/wandb_host.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/temporary_folder.hpp"

namespace troupe::internal {
namespace {

using test::temporary_folder;
using test::write_bytes;
using lines = std::vector<std::string>;

TEST(rank_console_test, reads_whole_lines_once) {
  temporary_folder folder;
  auto path = folder / "rank_0.log";
  std::uint64_t from = 0;
  EXPECT_EQ(read_console(path, from), lines{});
  write_bytes(path, "a\nb\nhalf");
  EXPECT_EQ(read_console(path, from), (lines{"a\n", "b\n"}));
  EXPECT_EQ(from, 4u);
  EXPECT_EQ(read_console(path, from), lines{});
  write_bytes(path, "a\nb\nhalf and whole\n");
  EXPECT_EQ(read_console(path, from), lines{"half and whole\n"});
}

TEST(rank_console_test, does_not_wait_for_a_pipe_in_its_place) {
  temporary_folder folder;
  ASSERT_EQ(::mkfifo((folder / "rank_0.log").c_str(), 0600), 0);
  std::uint64_t from = 0;
  EXPECT_EQ(read_console(folder / "rank_0.log", from), lines{});
}

TEST(rank_console_test, leaves_out_the_oldest_of_too_much_and_says_so) {
  temporary_folder folder;
  auto path = folder / "rank_0.log";
  std::string text;
  for (int i = 0; i < 100'000; ++i)
    text += "line " + std::to_string(i) + "\n";
  write_bytes(path, text);
  std::uint64_t from = 0;
  auto found = read_console(path, from);
  EXPECT_EQ(from, text.size());
  std::size_t shown = 0;
  for (std::size_t i = 1; i < found.size(); ++i)
    shown += found[i].size();
  EXPECT_LE(shown, 256u * 1024);
  EXPECT_EQ(found.front(), "[" + std::to_string(text.size() - shown)
                             + " bytes are left out; the complete log is in "
                             + path.string() + "]\n");
  EXPECT_EQ(found.back(), "line 99999\n");
  EXPECT_TRUE(found[1].starts_with("line "));
}

TEST(rank_console_test, gets_past_a_line_without_end) {
  temporary_folder folder;
  auto path = folder / "rank_0.log";
  write_bytes(path, std::string(1'000'000, 'x'));
  std::uint64_t from = 0;
  EXPECT_EQ(read_console(path, from).size(), 2u);
  EXPECT_EQ(from, 1'000'000u);
}

TEST(rank_console_test, begins_at_the_end_of_a_file_that_became_shorter) {
  temporary_folder folder;
  auto path = folder / "rank_0.log";
  write_bytes(path, "a\n");
  std::uint64_t from = 100;
  EXPECT_EQ(read_console(path, from), lines{});
  EXPECT_EQ(from, 2u);
}

} // namespace
} // namespace troupe::internal
