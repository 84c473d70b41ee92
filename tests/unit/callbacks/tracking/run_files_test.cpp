#include "troupe/callbacks/tracking/run_files.hpp"

#include <utility>

#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "tests/support/child.hpp"
#include "tests/support/few_descriptors.hpp"
#include "tests/support/written_run.hpp"
#include "troupe/callbacks/tracking/record_reader.hpp"

namespace troupe::internal::test {
namespace {

using testing::HasSubstr;

class run_files_test : public testing::Test {
protected:
  run_files_test() {
    fs::create_directories(run.path() / "artifacts/deep");
    write_bytes(run.path() / "artifacts/deep/own", "own");
    write_bytes(strangers / "secret", "secret");
    fs::create_symlink(strangers / "secret", run.path() / "artifacts/link");
    fs::create_symlink(strangers.path(), run.path() / "artifacts/folder");
  }

  std::vector<tracker_record> records() {
    std::vector<tracker_record> result;
    auto reader = record_reader::open(run.path()).value();
    while (auto next = reader.next().value())
      result.push_back(std::move(*next));
    return result;
  }

  written_run run;
  temporary_folder strangers;
};

TEST_F(run_files_test, opens_what_lies_in_the_folder) {
  auto file = open_inside(run.path(), "artifacts/deep/own");
  ASSERT_TRUE(file) << file.error().message;
  char text[8] = {};
  EXPECT_EQ(::read(file->get(), text, sizeof(text)), 3);
  EXPECT_STREQ(text, "own");
}

TEST_F(run_files_test, follows_no_link_and_no_way_out) {
  auto way_out = "../" + run.path().filename().string() + "/run.json";
  for (std::string name :
       {"artifacts/link", "artifacts/folder/secret", "../x", way_out.c_str(),
        "/etc/passwd", "artifacts/../run.json", ""}) {
    auto file = open_inside(run.path(), name);
    ASSERT_FALSE(file) << name;
    EXPECT_EQ(file.error().code, ec::invalid_argument) << name;
    EXPECT_FALSE(is_inside(run.path(), name).value()) << name;
  }
  EXPECT_TRUE(is_inside(run.path(), "artifacts/deep").value());
  EXPECT_TRUE(is_inside(run.path(), "artifacts/deep/own").value());
  EXPECT_TRUE(is_inside(run.path(), "artifacts/gone").value());
}

TEST_F(run_files_test, opens_no_folder_and_no_pipe) {
  ASSERT_EQ(::mkfifo((run.path() / "pipe").c_str(), 0600), 0);
  for (auto name : {"artifacts", "pipe"}) {
    auto file = open_inside(run.path(), name);
    ASSERT_FALSE(file) << name;
    EXPECT_THAT(file.error().message, HasSubstr("not a regular file"));
  }
}

TEST_F(run_files_test, an_artifact_is_a_file_or_what_lies_below_a_folder) {
  auto file = files_of({run.path() / "artifacts/deep/own", "a"}).value();
  ASSERT_EQ(file.size(), 1u);
  EXPECT_EQ(file[0].path, run.path() / "artifacts/deep/own");
  EXPECT_EQ(file[0].name, "a");
  auto below = files_of({run.path() / "artifacts/deep", "b"}).value();
  ASSERT_EQ(below.size(), 1u);
  EXPECT_EQ(below[0].path, run.path() / "artifacts/deep/own");
  EXPECT_EQ(below[0].name, "b/own");
  EXPECT_FALSE(files_of({run.path() / "gone", "c"}));
}

TEST_F(run_files_test, only_a_file_that_is_gone_is_refused_at_once) {
  using kind = sink_failure::kind;
  const error reason{ec::storage, "cannot read it"};
  auto folder = run.path() / "artifacts/deep";
  EXPECT_EQ(unreadable_file(folder / "gone", reason).what, kind::rejected);
  for (auto& file : {folder / "own", folder / "nowhere/gone"}) {
    auto x = unreadable_file(file, reason);
    EXPECT_EQ(x.what, kind::transient) << file;
    EXPECT_TRUE(x.suspect) << file;
    EXPECT_EQ(x.reason.message, reason.message);
  }
  EXPECT_EQ(unreadable_file(folder / "own", {ec::corrupt, "too long"}).what,
            kind::rejected);
}

TEST_F(run_files_test, trackers_get_no_file_that_is_not_the_runs) {
  for (auto name :
       {"artifacts/deep/own", "artifacts/link", "artifacts/folder/secret",
        "../../etc/passwd", "/etc/passwd"}) {
    run.event(1, "tracker_artifact", {{"name", "a"}, {"file", name}});
    run.event(2, "tracker_image", {{"name", "i"}, {"file", name}});
  }
  auto all = records();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(std::get<logged_artifact>(all[0].content).path,
            run.path() / "artifacts/deep/own");
  EXPECT_EQ(std::get<logged_image>(all[1].content).file,
            run.path() / "artifacts/deep/own");
}

TEST_F(run_files_test, trackers_miss_no_file_that_cannot_be_looked_up_now) {
  run.event(1, "tracker_artifact",
            {{"name", "a"}, {"file", "artifacts/deep/own"}});
  auto reader = record_reader::open(run.path()).value();
  auto end = fs::file_size(run.path() / "journal.jsonl");
  for (auto i = 0; i < 2; ++i) {
    few_descriptors none;
    auto next = reader.next();
    ASSERT_FALSE(next);
    EXPECT_EQ(next.error().code, ec::storage);
    EXPECT_LT(reader.offset(), end);
  }
  auto next = reader.next().value();
  ASSERT_TRUE(next);
  EXPECT_EQ(next->end, end);
  EXPECT_EQ(std::get<logged_artifact>(next->content).path,
            run.path() / "artifacts/deep/own");
}

// Their refusal is noted; to skip the record would not be.
TEST_F(run_files_test, trackers_get_a_file_that_this_user_may_not_look_up) {
  auto folder = run.path() / "artifacts/deep";
  fs::permissions(folder, fs::no_perms);
  // The other user has the group of this one.
  auto may_enter = fs::owner_all | fs::group_exe | fs::others_exe;
  for (auto& path :
       {run.path().parent_path(), run.path(), folder.parent_path()})
    fs::permissions(path, may_enter);
  auto status = run_in_child([this] {
    if (::geteuid() == 0 && ::seteuid(54321) != 0)
      ::_exit(3);
    auto is_closed = !open_inside(run.path(), "artifacts/deep/own");
    auto own = is_inside(run.path(), "artifacts/deep/own");
    ::_exit(is_closed && own && *own ? 0 : 2);
  });
  fs::permissions(folder, fs::owner_all);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(run_files_test, trackers_get_no_checkpoint_elsewhere) {
  run.report({.index = 0, .values = {{}}, .checkpoint = "../../home"});
  run.report({.index = 1, .values = {{}}, .checkpoint = "c1"});
  auto all = records();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(std::get<journaled_batch>(all[0].content).checkpoint, "");
  EXPECT_EQ(std::get<journaled_batch>(all[1].content).checkpoint, "c1");
}

} // namespace
} // namespace troupe::internal::test
