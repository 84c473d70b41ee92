#include "troupe/runtime/checkpoint/staged_checkpoint.hpp"

#include <gtest/gtest.h>

#include "tests/support/checkpoint_files.hpp"
#include "tests/support/child.hpp"
#include "tests/support/small_disk.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/checkpoint/checkpoint.hpp"
#include "troupe/runtime/checkpoint/checkpoint_store.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/storage/checksum.hpp"

using namespace troupe;
using namespace troupe::test;

class staged_checkpoint_test : public testing::Test {
protected:
  staged_checkpoint_test() { fs::create_directory(run / "checkpoints"); }

  staged_checkpoint make() {
    return staged_checkpoint::create(run.path(), 1, 7, 2).value();
  }

  temporary_folder run;
  fs::path staging = run.path() / "checkpoints" / ".staging-1-7";
};

TEST_F(staged_checkpoint_test, lists_its_files_with_sizes_and_checksums) {
  auto staged = make();
  EXPECT_EQ(staged.path(), staging / "rank_2");
  write_bytes(staged.path() / "b", "hello");
  fs::create_directory(staged.path() / "a");
  write_bytes(staged.path() / "a" / "c", "");
  auto files = staged.seal();
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_EQ(*files, (std::vector<file_entry>{{"a/c", 0, checksum("")},
                                             {"b", 5, checksum("hello")}}));
}

TEST_F(staged_checkpoint_test, seals_more_files_than_it_opens_at_once) {
  auto staged = make();
  for (int i = 0; i < 200; ++i)
    write_bytes(staged.path() / std::to_string(i), std::to_string(i));
  EXPECT_EQ(staged.seal().value().size(), 200u);
}

TEST_F(staged_checkpoint_test, goes_when_it_is_dropped_and_stays_when_sealed) {
  {
    auto staged = make();
    write_bytes(staged.path() / "x", "x");
  }
  EXPECT_FALSE(fs::exists(staging));
  {
    auto staged = make();
    write_bytes(staged.path() / "x", "x");
    auto moved = std::move(staged);
    ASSERT_TRUE(moved.seal());
  }
  EXPECT_TRUE(fs::exists(staging / "rank_2" / "x"));
}

TEST_F(staged_checkpoint_test, refuses_to_be_empty) {
  auto staged = make();
  auto files = staged.seal();
  ASSERT_FALSE(files);
  EXPECT_EQ(files.error().code, ec::invalid_argument);
  EXPECT_NE(files.error().message.find("has no files"), std::string::npos);
}

TEST_F(staged_checkpoint_test, refuses_a_manifest_and_what_is_no_file) {
  auto staged = make();
  write_bytes(staged.path() / "manifest.json", "{}");
  EXPECT_EQ(staged.seal().error().code, ec::invalid_argument);
  fs::remove(staged.path() / "manifest.json");
  fs::create_symlink("/etc/passwd", staged.path() / "link");
  EXPECT_EQ(staged.seal().error().code, ec::invalid_argument);
}

TEST_F(staged_checkpoint_test, reports_a_failed_fsync) {
  auto staged = make();
  write_bytes(staged.path() / "x", "x");
  ASSERT_TRUE(arm_failpoint("storage.sync_file=eio"));
  auto files = staged.seal();
  ASSERT_TRUE(arm_failpoint(""));
  ASSERT_FALSE(files);
  EXPECT_NE(files.error().message.find("Input/output error"),
            std::string::npos);
}

TEST_F(staged_checkpoint_test, takes_files_from_another_file_system) {
  small_disk disk{run / "disk", "1m"};
  if (!disk)
    GTEST_SKIP() << "mounting a small tmpfs: " << disk.reason();
  write_bytes(disk.path() / "x", "12");
  fs::permissions(disk.path() / "x", fs::owner_read);
  for (auto move : {false, true}) {
    auto staged = make();
    ASSERT_TRUE(staged.add_directory(disk.path(), move));
    EXPECT_EQ(bytes_of(staging / "rank_2" / "x"), "12");
    EXPECT_EQ(fs::exists(disk.path() / "x"), !move);
  }
}

TEST_F(staged_checkpoint_test, copies_or_moves_a_folder_into_itself) {
  temporary_folder source;
  fs::create_directory(source / "sub");
  write_bytes(source / "x", "1");
  write_bytes(source.path() / "sub" / "y", "2");
  write_bytes(source / "manifest.json", "of another checkpoint");
  fs::create_symlink(source / "x", source / "link");
  {
    auto staged = make();
    ASSERT_TRUE(staged.add_directory(source.path(), false));
    EXPECT_EQ(staged.seal().value().size(), 3u);
    EXPECT_TRUE(fs::exists(source / "x"));
  }
  fs::remove(source / "link");
  auto staged = make();
  ASSERT_TRUE(staged.add_directory(source.path(), true));
  EXPECT_FALSE(fs::exists(source / "x"));
  EXPECT_FALSE(fs::exists(source.path() / "sub" / "y"));
  EXPECT_EQ(bytes_of(staging / "rank_2" / "sub" / "y"), "2");
  auto missing = staged.add_directory(run / "nowhere", false);
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find((run / "nowhere").string()),
            std::string::npos);
}

TEST_F(staged_checkpoint_test, reports_a_storage_that_vanished) {
  fs::remove_all(run.path());
  auto staged = staged_checkpoint::create(run.path(), 0, 0, 0);
  ASSERT_FALSE(staged);
  EXPECT_EQ(staged.error().code, ec::storage);
  EXPECT_FALSE(fs::exists(run.path())); // not made anew
}

TEST(checkpoint_test, keeps_metadata_beside_the_files) {
  temporary_folder folder;
  auto x = checkpoint::from_directory(folder.path());
  EXPECT_EQ(x.metadata().value(), metrics{});
  ASSERT_TRUE(x.set_metadata({{"a", 1}, {"b", 2}}));
  ASSERT_TRUE(x.update_metadata({{"b", "new"}}));
  EXPECT_EQ(x.metadata().value(), (metrics{{"a", 1}, {"b", "new"}}));
  ASSERT_TRUE(x.set_metadata({}));
  EXPECT_EQ(x.metadata().value(), metrics{});
  auto missing = checkpoint::from_directory(folder / "none");
  EXPECT_EQ(missing.metadata().error().code, ec::storage);
  write_bytes(folder / ".metadata.json", "{");
  EXPECT_EQ(x.metadata().error().code, ec::corrupt);
}

// A2: the natural thing in a data-parallel loop.
TEST(checkpoint_test, takes_the_metadata_of_ranks_that_set_it_at_once) {
  temporary_folder folder;
  auto x = checkpoint::from_directory(folder.path());
  ASSERT_TRUE(x.set_metadata({{"rank", -1}}));
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.push_back(::fork());
    if (ranks.back() != 0)
      continue;
    auto refused = 0;
    for (int i = 0; i < 50; ++i) {
      refused += !x.set_metadata(
        {{"rank", rank}, {"text", std::string(20000, char('a' + rank))}});
      auto found = x.metadata();
      refused += !found || !found->contains("rank");
    }
    ::_exit(refused > 0);
  }
  for (auto pid : ranks) {
    auto status = -1;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator{folder.path()},
                          fs::directory_iterator{}),
            1);
}

TEST(checkpoint_test, stays_whole_when_a_rank_dies_setting_metadata) {
  temporary_folder run;
  fs::create_directory(run / "checkpoints");
  auto store = checkpoint_store::open(run.path(), "r", {}, {}).value();
  ASSERT_TRUE(store.begin_attempt(0));
  auto x =
    store.commit(0, stage_batch(run.path(), 0, 0, "c", {{{"a", "1"}}}).value())
      .value();
  for (auto moment : {"replace.written", "replace.renamed"}) {
    auto status = run_in_child([&] {
      (void) arm_failpoint(moment);
      (void) x.data.set_metadata({{"accuracy", 0.9}});
    });
    ASSERT_TRUE(WIFSIGNALED(status)) << moment;
    EXPECT_TRUE(x.data.verify()) << moment;
    EXPECT_EQ(store.resume_checkpoint().value(), x) << moment;
  }
  EXPECT_TRUE(store.take_events().empty());
}

TEST(checkpoint_test, copies_its_files_to_a_folder) {
  temporary_folder folder;
  fs::create_directory(folder / "from");
  write_bytes(folder.path() / "from" / "x", "1");
  auto x = checkpoint::from_directory(folder / "from");
  EXPECT_EQ(x.to_directory(folder.path() / "a" / "b").value(),
            folder.path() / "a" / "b");
  EXPECT_EQ(bytes_of(folder.path() / "a" / "b" / "x"), "1");
}
