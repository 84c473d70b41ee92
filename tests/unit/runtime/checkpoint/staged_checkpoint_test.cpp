#include "troupe/runtime/checkpoint/staged_checkpoint.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include "tests/support/checkpoint_files.hpp"
#include "tests/support/child.hpp"
#include "tests/support/few_descriptors.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/small_disk.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/checkpoint/checkpoint.hpp"
#include "troupe/runtime/checkpoint/manifest.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/storage/checksum.hpp"
#include "troupe/runtime/storage/durable_file.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;

class staged_checkpoint_test : public testing::Test {
protected:
  staged_checkpoint_test() { fs::create_directory(run / "checkpoints"); }

  staged_checkpoint make() { return staging::create(run.path(), 1, 2).value(); }

  static expected<std::vector<file_entry>> seal(staged_checkpoint& x) {
    return staging::seal(x, 7, "c").map([](checkpoint_part part) {
      EXPECT_EQ(part.name, "c");
      return std::move(part.files);
    });
  }

  bool has_staging() const { return !fs::is_empty(run / "checkpoints"); }

  temporary_folder run;
  fs::path staging_path = run.path() / "checkpoints" / ".staging-1-7";
};

TEST_F(staged_checkpoint_test, lists_its_files_with_sizes_and_checksums) {
  auto staged = make();
  write_bytes(staged.path() / "b", "hello");
  fs::create_directory(staged.path() / "a");
  write_bytes(staged.path() / "a" / "c", "");
  auto files = seal(staged);
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_EQ(*files, (std::vector<file_entry>{{"a/c", 0, checksum("")},
                                             {"b", 5, checksum("hello")}}));
}

// Ranks that are threads share the descriptors of their process.
TEST_F(staged_checkpoint_test, seals_any_number_of_files_with_few_descriptors) {
  auto staged = make();
  for (int i = 0; i < 200; ++i)
    write_bytes(staged.path() / std::to_string(i), std::to_string(i));
  auto files = [&] {
    few_descriptors limit{9};
    return seal(staged);
  }();
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_EQ(files->size(), 200u);
}

TEST_F(staged_checkpoint_test,
       is_removed_when_it_is_destroyed_and_stays_when_sealed) {
  {
    auto staged = make();
    write_bytes(staged.path() / "x", "x");
  }
  EXPECT_FALSE(has_staging());
  {
    auto staged = make();
    write_bytes(staged.path() / "x", "x");
    auto moved = std::move(staged);
    ASSERT_TRUE(seal(moved));
  }
  EXPECT_TRUE(fs::exists(staging_path / "rank_2" / "x"));
}

TEST_F(staged_checkpoint_test,
       leaves_the_sources_of_a_report_that_was_refused) {
  temporary_folder source;
  write_bytes(source / "x", "1");
  {
    auto staged = make();
    ASSERT_TRUE(staged.add_directory(source.path(), true));
  }
  EXPECT_EQ(bytes_of(source / "x"), "1");
  EXPECT_FALSE(has_staging());
}

// B8, D: a folder belongs to its object, whatever others of the rank or of its
// peers do, and to the report that it goes with.
TEST_F(staged_checkpoint_test, belongs_to_one_object_and_to_any_report) {
  auto early = make();
  auto late = make();
  auto peer = staging::create(run.path(), 1, 0).value();
  write_bytes(early.path() / "x", "early");
  write_bytes(late.path() / "x", "late");
  write_bytes(peer.path() / "y", "peer");
  ASSERT_TRUE(staging::seal(early, 9, "c"));
  EXPECT_THAT(staging::seal(early, 10, "c").error().message,
              testing::HasSubstr("was reported already"));
  { auto dropped = std::move(late); }
  { auto dropped = staging::create(run.path(), 1, 1).value(); }
  ASSERT_TRUE(staging::seal(peer, 9, "c"));
  auto together = run.path() / "checkpoints" / ".staging-1-9";
  EXPECT_EQ(bytes_of(together / "rank_2" / "x"), "early");
  EXPECT_EQ(bytes_of(together / "rank_0" / "y"), "peer");
}

// B7: what is too long for a message travels as a file.
TEST_F(staged_checkpoint_test, puts_a_long_list_of_files_beside_them) {
  auto staged = make();
  constexpr int count = 2600;
  for (int i = 0; i < count; ++i)
    write_bytes(staged.path() / (std::string(200, 'x') + std::to_string(i)),
                "1");
  auto part = staging::seal(staged, 7, "c").value();
  EXPECT_TRUE(part.files.empty());
  EXPECT_EQ(part.listed, count);
  auto files = read_file_list(held(staging_path), "rank_2.list", count).value();
  ASSERT_EQ(files.size(), count);
  EXPECT_TRUE(std::ranges::is_sorted(files, {}, &file_entry::path));
  EXPECT_EQ(files[0].checksum, checksum("1"));
}

TEST(file_list_test, holds_a_million_files_and_notices_damage) {
  temporary_folder folder;
  std::vector<file_entry> files;
  for (std::uint64_t i = 0; i < (sanitized ? 50'000 : 1'000'000); ++i)
    files.push_back({"tensors/layer." + std::to_string(i), i, ~i});
  files[7].path = "a line\nwith a break \xff";
  EXPECT_TRUE(is_long_list(files));
  ASSERT_TRUE(write_file_list(held(folder.path()), "list", files));
  EXPECT_EQ(read_file_list(held(folder.path()), "list", files.size()).value(),
            files);
  EXPECT_EQ(read_file_list(held(folder.path()), "list", 7).error().code,
            ec::corrupt);
  files.resize(3);
  EXPECT_FALSE(is_long_list(files));
  ASSERT_TRUE(write_file_list(held(folder.path()), "short", files));
  auto text = bytes_of(folder / "short");
  for (std::size_t i = 0; i < text.size(); ++i) {
    auto damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    write_bytes(folder / "damaged", damaged);
    EXPECT_EQ(read_file_list(held(folder.path()), "damaged", 3).error().code,
              ec::corrupt);
    write_bytes(folder / "damaged", text.substr(0, i));
    EXPECT_EQ(read_file_list(held(folder.path()), "damaged", 3).error().code,
              ec::corrupt);
  }
}

TEST_F(staged_checkpoint_test, refuses_to_be_empty) {
  auto staged = make();
  auto files = seal(staged);
  ASSERT_FALSE(files);
  EXPECT_EQ(files.error().code, ec::invalid_argument);
  EXPECT_NE(files.error().message.find("has no files"), std::string::npos);
}

TEST_F(staged_checkpoint_test, refuses_a_manifest_and_anything_but_a_file) {
  auto staged = make();
  write_bytes(staged.path() / "manifest.json", "{}");
  EXPECT_EQ(seal(staged).error().code, ec::invalid_argument);
  fs::remove(staged.path() / "manifest.json");
  fs::create_symlink("/etc/passwd", staged.path() / "link");
  EXPECT_EQ(seal(staged).error().code, ec::invalid_argument);
}

TEST_F(staged_checkpoint_test, reports_a_failed_fsync) {
  auto staged = make();
  write_bytes(staged.path() / "x", "x");
  ASSERT_TRUE(arm_failpoint("storage.sync_file=eio"));
  auto files = seal(staged);
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
    EXPECT_EQ(bytes_of(staged.path() / "x"), "12");
    EXPECT_TRUE(fs::exists(disk.path() / "x"));
    staging::remove_sources(staged);
    EXPECT_EQ(fs::exists(disk.path() / "x"), !move);
  }
}

TEST_F(staged_checkpoint_test, copies_or_moves_a_folder_into_itself) {
  temporary_folder source;
  fs::create_directory(source / "sub");
  write_bytes(source / "x", "1");
  write_bytes(source.path() / "sub" / "y", "2");
  write_bytes(source / "manifest.json", to_json(manifest{}));
  fs::create_symlink(source / "x", source / "link");
  {
    auto staged = make();
    ASSERT_TRUE(staged.add_directory(source.path(), false));
    EXPECT_EQ(seal(staged).value().size(), 3u);
    EXPECT_TRUE(fs::exists(source / "x"));
  }
  fs::remove(source / "link");
  auto staged = make();
  ASSERT_TRUE(staged.add_directory(source.path(), true));
  auto missing = staged.add_directory(run / "nowhere", false);
  ASSERT_TRUE(seal(staged));
  EXPECT_TRUE(fs::exists(source / "x")); // until the report is stored
  staging::remove_sources(staged);
  EXPECT_FALSE(fs::exists(source / "x"));
  EXPECT_FALSE(fs::exists(source.path() / "sub" / "y"));
  EXPECT_TRUE(fs::exists(source / "manifest.json"));
  EXPECT_EQ(bytes_of(staging_path / "rank_2" / "sub" / "y"), "2");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find((run / "nowhere").string()),
            std::string::npos);
}

TEST_F(staged_checkpoint_test, moves_only_what_lies_in_the_folder_itself) {
  temporary_folder data, source;
  fs::create_directory(data / "sub");
  write_bytes(data / "x", "x");
  write_bytes(data.path() / "sub" / "y", "y");
  write_bytes(data / "z", "z");
  fs::create_directory_symlink(data.path(), source / "dataset");
  fs::create_symlink(data / "z", source / "link");
  fs::create_hard_link(data / "z", source / "second_name");
  write_bytes(source / "own", "own");
  auto staged = make();
  ASSERT_TRUE(staged.add_directory(source.path(), true));
  for (auto name : {"x", "z"}) // written to by its other name
    write_bytes(data / name, "later");
  EXPECT_EQ(seal(staged).value().size(), 6u);
  EXPECT_EQ(bytes_of(staging_path / "rank_2" / "dataset" / "x"), "x");
  EXPECT_EQ(bytes_of(staging_path / "rank_2" / "dataset" / "sub" / "y"), "y");
  EXPECT_EQ(bytes_of(staging_path / "rank_2" / "link"), "z");
  EXPECT_EQ(bytes_of(staging_path / "rank_2" / "second_name"), "z");
  staging::remove_sources(staged);
  EXPECT_EQ(bytes_of(data / "x"), "later");
  EXPECT_EQ(bytes_of(data.path() / "sub" / "y"), "y");
  EXPECT_EQ(bytes_of(data / "z"), "later");
  EXPECT_TRUE(fs::is_symlink(source / "dataset"));
  for (auto name : {"link", "second_name", "own"})
    EXPECT_FALSE(fs::exists(fs::symlink_status(source / name))) << name;
}

TEST_F(staged_checkpoint_test, moves_no_file_of_a_checkpoint_that_a_run_has) {
  temporary_folder other;
  auto committed = other.path() / "checkpoints" / "c";
  fs::create_directories(committed / "sub");
  write_bytes(committed / "x", "1");
  write_bytes(committed / "sub" / "y", "2");
  write_bytes(committed / "manifest.json", to_json(manifest{.name = "c"}));
  fs::create_directory_symlink(committed, other / "link");
  fs::create_directory_symlink(other / "checkpoints", other / "all");
  for (auto& source :
       {committed, committed / "sub", other / "link", other / "checkpoints",
        other.path(), other / "all", other.path() / "checkpoints" / "."}) {
    auto staged = make();
    ASSERT_TRUE(staged.add_directory(source, true)) << source;
    EXPECT_FALSE(staging::has_sources(staged)) << source;
    staging::remove_sources(staged);
    EXPECT_EQ(bytes_of(committed / "x"), "1") << source;
    EXPECT_EQ(bytes_of(committed / "sub" / "y"), "2") << source;
  }
  write_bytes(committed / "manifest.json", "{damaged");
  auto staged = make();
  ASSERT_TRUE(staged.add_directory(other / "checkpoints", true));
  EXPECT_FALSE(staging::has_sources(staged));
}

TEST_F(staged_checkpoint_test, follows_no_link_that_leads_back) {
  temporary_folder source;
  fs::create_directories(source.path() / "a" / "b");
  write_bytes(source.path() / "a" / "x", "1");
  fs::create_directory_symlink(source / "a", source / "same"); // not a cycle
  for (auto& to : {source.path(), source / "a", run.path(), fs::path{"/"}}) {
    auto link = source.path() / "a" / "b" / "back";
    fs::create_directory_symlink(to, link);
    for (auto move : {false, true}) {
      auto staged = make();
      auto added = staged.add_directory(source.path(), move);
      ASSERT_FALSE(added) << to;
      EXPECT_EQ(added.error().code, ec::invalid_argument);
      EXPECT_NE(added.error().message.find("/back leads"), std::string::npos)
        << added.error().message;
    }
    fs::remove(link);
  }
  auto staged = make();
  ASSERT_TRUE(staged.add_directory(source.path(), false));
  EXPECT_EQ(seal(staged).value().size(), 2u);
  EXPECT_EQ(bytes_of(source.path() / "a" / "x"), "1");
}

TEST_F(staged_checkpoint_test, leaves_out_no_file_of_the_user) {
  temporary_folder source;
  fs::create_directory(source / "tok");
  for (auto name : {"manifest.json", ".metadata.json.old"})
    write_bytes(source.path() / "tok" / name, "mine");
  write_bytes(source / ".metadata.json.old", "mine");
  {
    auto staged = make();
    ASSERT_TRUE(staged.add_directory(source.path(), false));
    auto files = seal(staged);
    ASSERT_TRUE(files) << files.error().message;
    EXPECT_EQ(files->size(), 3u);
    // Nor when it was committed.
    auto committed = staging_path / "rank_2";
    write_bytes(committed / "manifest.json",
                to_json(manifest{.files = std::move(*files)}));
    temporary_folder copy;
    ASSERT_TRUE(
      checkpoint::from_directory(committed).to_directory(copy.path()));
    EXPECT_EQ(
      names_below(copy.path()),
      (std::vector<std::string>{".metadata.json.old", "tok/.metadata.json.old",
                                "tok/manifest.json"}));
  }
  // One that the run's own would replace is refused, not dropped.
  write_bytes(source / "manifest.json", "mine");
  for (auto move : {false, true}) {
    auto staged = make();
    ASSERT_TRUE(staged.add_directory(source.path(), move));
    auto files = seal(staged);
    ASSERT_FALSE(files);
    EXPECT_EQ(files.error().code, ec::invalid_argument);
    EXPECT_NE(files.error().message.find("manifest.json"), std::string::npos);
  }
}

TEST_F(staged_checkpoint_test, belongs_to_the_process_that_made_it) {
  auto staged = make();
  write_bytes(staged.path() / "x", "1");
  auto status = run_in_child([&] {
    auto moved = std::move(staged);
    auto sealed = seal(moved);
    if (sealed || sealed.error().code != ec::invalid_argument)
      ::_exit(2);
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(seal(staged).value().size(), 1u);
}

TEST_F(staged_checkpoint_test, reports_a_storage_that_vanished) {
  fs::remove_all(run.path());
  auto staged = staging::create(run.path(), 0, 0);
  ASSERT_FALSE(staged);
  EXPECT_EQ(staged.error().code, ec::storage);
  EXPECT_FALSE(fs::exists(run.path())); // not created again
}

TEST_F(staged_checkpoint_test, creates_nothing_at_the_runs_former_path) {
  auto path = run / "run";
  auto checkpoints = path / "checkpoints";
  fs::create_directory(run / "source");
  write_bytes(run / "source/x", "1");
  for (auto way : {"renamed", "replaced", "a link"}) {
    SCOPED_TRACE(way);
    fs::remove_all(path);
    fs::remove_all(run / "moved");
    fs::create_directories(checkpoints);
    auto inode = held(path).inode();
    auto staged = staging::create(path, 1, 2, inode).value();
    write_bytes(staged.path() / "x", "1");
    auto name = staged.path().filename();
    fs::rename(path, run / "moved");
    auto theirs = checkpoints / name;
    if (way == std::string{"a link"}) {
      fs::create_directory(run / "other");
      fs::create_directory_symlink(run / "other", path);
    }
    if (way != std::string{"renamed"}) { // Another run's rank uses the name.
      fs::create_directories(theirs);
      write_bytes(theirs / "x", "theirs");
    }
    EXPECT_TRUE(staged.add_directory(run / "source", false));
    EXPECT_TRUE(staged.add_directory(run / "source", true));
    EXPECT_EQ(staging::create(path, 1, 2, inode).error().code, ec::storage);
    auto sealed = staging::seal(staged, 7, "c");
    ASSERT_FALSE(sealed);
    EXPECT_EQ(sealed.error().code, ec::storage);
    EXPECT_NE(sealed.error().message.find(checkpoints.string()),
              std::string::npos)
      << sealed.error().message;
    { auto dropped = std::move(staged); }
    EXPECT_TRUE(fs::is_empty(run / "moved/checkpoints"));
    if (way == std::string{"renamed"}) {
      EXPECT_FALSE(fs::exists(path)); // not created again
      continue;
    }
    EXPECT_EQ(bytes_of(theirs / "x"), "theirs");
    EXPECT_EQ(std::distance(fs::recursive_directory_iterator{checkpoints},
                            fs::recursive_directory_iterator{}),
              2);
  }
}
