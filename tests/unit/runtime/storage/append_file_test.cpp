#include "troupe/runtime/storage/append_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <stop_token>

#include "tests/support/small_disk.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/failpoint.hpp"

namespace troupe::internal {
namespace {

class grown_file_test : public testing::Test {
protected:
  void TearDown() override { ASSERT_TRUE(arm_failpoint("")); }

  std::string content() const { return test::bytes_of(path_); }

  test::temporary_folder folder_;
  fs::path path_ = folder_ / "records";
};

class append_file_test : public grown_file_test {
protected:
  append_file open() { return append_file::open(path_, O_CREAT).value(); }
};

class record_file_test : public grown_file_test {
protected:
  record_file open() { return record_file::open(path_).value(); }
};

TEST_F(record_file_test, appends_to_existing_content) {
  test::write_bytes(path_, "one\n");
  auto file = open();
  EXPECT_EQ(file.size(), 4u);
  ASSERT_TRUE(file.append("two\n"));
  EXPECT_EQ(file.size(), 4u);
  ASSERT_TRUE(file.commit());
  EXPECT_EQ(file.size(), 8u);
  EXPECT_EQ(content(), "one\ntwo\n");
}

TEST_F(record_file_test, cuts_back_and_never_grows_by_it) {
  test::write_bytes(path_, "one\ntwo\n");
  auto file = open();
  ASSERT_TRUE(file.cut(100));
  EXPECT_EQ(content(), "one\ntwo\n");
  ASSERT_TRUE(file.cut(4));
  ASSERT_TRUE(file.append("2\n"));
  ASSERT_TRUE(file.commit());
  EXPECT_EQ(content(), "one\n2\n");
}

TEST_F(record_file_test, leaves_nothing_of_a_batch_that_a_full_disk_tore) {
  auto file = open();
  ASSERT_TRUE(file.append("one\n"));
  ASSERT_TRUE(file.commit());
  ASSERT_TRUE(arm_failpoint("record_file.append:2=enospc"));
  ASSERT_TRUE(file.append("two\n"));
  auto third = file.append("three\n");
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().message,
            "cannot append to " + path_.string() + ": No space left on device");
  EXPECT_EQ(content(), "one\n");
  ASSERT_TRUE(file.append("two\nthree\n"));
  ASSERT_TRUE(file.commit());
  EXPECT_EQ(content(), "one\ntwo\nthree\n");
}

TEST_F(record_file_test, rewrites_a_batch_that_could_not_be_made_durable) {
  auto file = open();
  ASSERT_TRUE(arm_failpoint("record_file.commit=eio"));
  ASSERT_TRUE(file.append("one\n"));
  EXPECT_EQ(file.commit().error().code, ec::storage);
  EXPECT_EQ(content(), "");
  ASSERT_TRUE(file.append("one\n"));
  ASSERT_TRUE(file.commit());
  EXPECT_EQ(content(), "one\n");
}

TEST_F(record_file_test, notices_that_its_file_was_removed) {
  auto file = open();
  fs::remove(path_);
  ASSERT_TRUE(file.append("one\n"));
  EXPECT_EQ(file.commit().error().message,
            path_.string() + " was removed or replaced while it was written");
  test::write_bytes(path_, "someone else's\n");
  ASSERT_TRUE(file.append("one\n"));
  EXPECT_EQ(file.commit().error().code, ec::storage);
  EXPECT_EQ(content(), "someone else's\n");
}

TEST_F(record_file_test, writes_and_cuts_nothing_through_a_link) {
  test::write_bytes(folder_ / "theirs", "someone else's\n");
  fs::create_symlink("theirs", path_);
  for (auto open : {record_file::open, record_file::open_new})
    EXPECT_EQ(open(path_, {}).error().message,
              "cannot open " + path_.string()
                + ": it is a symbolic link, which Troupe never creates");
  EXPECT_EQ(test::bytes_of(folder_ / "theirs"), "someone else's\n");
}

TEST_F(record_file_test, changes_nothing_once_its_run_is_over) {
  std::stop_source over;
  auto file = record_file::open(path_, over.get_token()).value();
  ASSERT_TRUE(file.append("one\n"));
  ASSERT_TRUE(file.commit());
  ASSERT_TRUE(file.append("two\n"));
  // The call that makes it durable fails late: another driver has the run.
  over.request_stop();
  test::write_bytes(path_, "one\nTWO\nTHREE\n");
  ASSERT_TRUE(arm_failpoint("record_file.commit=eio"));
  EXPECT_FALSE(file.commit());
  EXPECT_EQ(file.append("two\n").error().code, ec::stopped);
  EXPECT_EQ(file.cut(0).error().code, ec::stopped);
  EXPECT_EQ(record_file::open_new(path_, over.get_token()).error().code,
            ec::stopped);
  EXPECT_EQ(content(), "one\nTWO\nTHREE\n");
  EXPECT_FALSE(fs::exists(folder_ / "records.1"));
}

TEST_F(record_file_test, names_the_missing_folder) {
  EXPECT_EQ(record_file::open(folder_ / "none" / "x").error().message,
            "cannot open " + (folder_ / "none" / "x").string()
              + ": No such file or directory");
}

TEST_F(append_file_test, cuts_off_what_it_gave_up_before_it_appends_again) {
  auto file = open();
  ASSERT_TRUE(file.append("one\ntwo\n"));
  file.give_up(4);
  EXPECT_EQ(file.size(), 4u);
  EXPECT_EQ(content(), "one\ntwo\n");
  ASSERT_TRUE(file.append("three\n"));
  EXPECT_EQ(content(), "one\nthree\n");
}

TEST_F(append_file_test, appends_behind_another_writer_and_cuts_nothing_of_it) {
  auto first = open(), second = open();
  ASSERT_TRUE(first.append("one\n"));
  ASSERT_TRUE(second.append("two\n"));
  EXPECT_EQ(first.cut(0).error().code, ec::storage);
  EXPECT_EQ(first.append("three\n").error().code, ec::storage);
  ASSERT_TRUE(second.append("four\n"));
  EXPECT_EQ(content(), "one\ntwo\nfour\n");
}

TEST_F(append_file_test, knows_whether_it_is_the_file_at_its_path) {
  auto file = open();
  EXPECT_TRUE(file.is_in_place().value());
  fs::rename(path_, path_.string() + ".1");
  EXPECT_FALSE(file.is_in_place().value());
  test::write_bytes(path_, "another");
  EXPECT_FALSE(file.is_in_place().value());
  EXPECT_TRUE(file.append("one\n"));
  EXPECT_EQ(content(), "another");
}

TEST(sync_latch_test, refuses_each_sync_after_one_that_failed) {
  sync_latch latch;
  auto works = [] { return expected<void>{}; };
  auto fails = []() -> expected<void> { return failure(ec::storage, "lost"); };
  EXPECT_TRUE(latch.pass("f", works));
  EXPECT_TRUE(latch.check("f"));
  EXPECT_EQ(latch.pass("f", fails).error().message, "lost");
  EXPECT_FALSE(latch.check("f"));
  auto later = latch.pass("f", works);
  ASSERT_FALSE(later);
  EXPECT_EQ(later.error().message, "f is not durable: an earlier sync failed");
}

TEST_F(record_file_test, survives_a_disk_that_is_really_full) {
  test::small_disk disk{folder_ / "disk", "64k"};
  if (!disk)
    GTEST_SKIP() << "no tmpfs can be mounted: " << disk.reason();
  auto file = record_file::open(disk.path() / "records");
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->append("one\n"));
  ASSERT_TRUE(file->commit());
  EXPECT_FALSE(file->append(std::string(200'000, 'x')));
  EXPECT_EQ(test::bytes_of(disk.path() / "records"), "one\n");
  ASSERT_TRUE(file->append("two\n"));
  ASSERT_TRUE(file->commit());
  EXPECT_EQ(test::bytes_of(disk.path() / "records"), "one\ntwo\n");
}

} // namespace
} // namespace troupe::internal
