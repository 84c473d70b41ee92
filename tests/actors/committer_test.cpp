// The committer over a real run folder.

#include <gtest/gtest.h>

#include "tests/support/checkpoint_files.hpp"
#include "tests/support/stepped_system.hpp"
#include "troupe/actors/committer.hpp"
#include "troupe/runtime/failpoint.hpp"

namespace troupe::internal::test {

class committer_test : public testing::Test {
protected:
  committer_test() {
    run_config config;
    config.name = "r";
    config.storage_path = folder / "runs";
    store = run_store::open(config).value();
    actor = system.spawn(committer, committer_args{store, monitor});
  }

  ~committer_test() override { (void) arm_failpoint(""); }

  std::shared_ptr<answer<attempt_start>> begin() {
    return system.ask<attempt_start>(actor, begin_attempt{});
  }

  std::shared_ptr<answer<report_committed>> commit(std::uint64_t attempt,
                                                   std::uint64_t index) {
    return commit(attempt, index, {{"x", index}});
  }

  std::shared_ptr<answer<report_committed>>
  commit(std::uint64_t attempt, std::uint64_t index, const metrics& values) {
    auto batch =
      stage_batch(store->path(), attempt, index, "c" + std::to_string(index),
                  {{{"a", "1"}}, {{"b", "2"}}}, values);
    return system.ask<report_committed>(actor,
                                        commit_batch{attempt, batch.value()});
  }

  std::string path_of(const std::string& name) const {
    return (store->path() / "checkpoints" / name).string();
  }

  temporary_folder folder;
  std::shared_ptr<run_store> store;
  std::shared_ptr<run_monitor> monitor = std::make_shared<run_monitor>();
  stepped_system system;
  committer_actor actor;
};

TEST_F(committer_test, numbers_attempts_and_says_where_they_resume) {
  auto first = begin();
  ASSERT_TRUE(first->value);
  EXPECT_EQ(first->value->attempt, 0u);
  EXPECT_EQ(first->value->first_report, 0u);
  EXPECT_FALSE(first->value->resume);
  commit(0, 0);
  auto second = begin();
  ASSERT_TRUE(second->value);
  EXPECT_EQ(second->value->attempt, 1u);
  EXPECT_EQ(second->value->first_report, 1u);
  ASSERT_TRUE(second->value->resume);
  EXPECT_EQ(second->value->resume->data.path(), path_of("c0"));
}

TEST_F(committer_test, answers_a_commit_with_the_folder_that_is_there_now) {
  begin();
  auto answer = commit(0, 0);
  ASSERT_TRUE(answer->value) << answer->failure.message;
  EXPECT_EQ(answer->value->index, 0u);
  EXPECT_EQ(answer->value->checkpoint, path_of("c0"));
  EXPECT_EQ(bytes_of(fs::path{path_of("c0")} / "b"), "2");
}

TEST_F(committer_test, commits_nothing_of_an_attempt_that_is_over) {
  begin();
  begin();
  auto answer = commit(0, 0);
  EXPECT_EQ(answer->failure.code, ec::stopped);
  EXPECT_FALSE(fs::exists(path_of("c0")));
}

TEST_F(committer_test, lists_what_was_committed_before_the_question) {
  begin();
  system.hold(actor);
  auto first = commit(0, 0);
  auto list = system.ask<checkpoint_list>(actor, get_checkpoints{});
  EXPECT_TRUE(list->pending());
  system.release();
  ASSERT_TRUE(list->value);
  ASSERT_EQ(list->value->entries.size(), 1u);
  auto& entry = list->value->entries[0];
  EXPECT_EQ(entry.data.path(), path_of("c0"));
  EXPECT_EQ(entry.values, (metrics{{"x", 0}}));
  EXPECT_EQ(entry.attempt, 0u);
}

TEST_F(committer_test, answers_with_one_entry_who_asks_for_a_name) {
  begin();
  auto first = commit(0, 0);
  auto second = commit(0, 1);
  auto list = system.ask<checkpoint_list>(actor, get_checkpoints{0, "c1"});
  ASSERT_TRUE(list->value);
  ASSERT_EQ(list->value->entries.size(), 1u);
  EXPECT_EQ(list->value->entries[0].data.path(), path_of("c1"));
  EXPECT_FALSE(list->value->more);
  auto none = system.ask<checkpoint_list>(actor, get_checkpoints{0, "c2"});
  ASSERT_TRUE(none->value);
  EXPECT_TRUE(none->value->entries.empty());
}

TEST_F(committer_test, refuses_a_name_where_something_else_lies) {
  begin();
  fs::create_directory(path_of("copy"));
  fs::create_symlink("nowhere", path_of("link"));
  for (auto name : {"copy", "link"}) {
    auto taken = system.ask<checkpoint_list>(actor, get_checkpoints{0, name});
    EXPECT_FALSE(taken->value) << name;
    EXPECT_EQ(taken->failure.code, ec::conflict) << name;
    EXPECT_NE(taken->failure.message.find(std::string{"checkpoints/"} + name),
              std::string::npos)
      << taken->failure.message;
  }
}

TEST_F(committer_test, gives_a_long_list_in_pages_that_fit_a_message) {
  begin();
  for (std::uint64_t i = 0; i < 3; ++i)
    commit(0, i, {{"notes", std::string(600 * 1024, 'x')}});
  for (std::uint64_t i = 0; i < 3; ++i) {
    auto page = system.ask<checkpoint_list>(actor, get_checkpoints{i, {}});
    ASSERT_TRUE(page->value);
    ASSERT_EQ(page->value->entries.size(), 1u);
    EXPECT_EQ(page->value->entries[0].index, i);
    EXPECT_EQ(page->value->more, i < 2);
  }
}

TEST_F(committer_test, puts_the_result_on_the_board_once_it_is_durable) {
  begin();
  commit(0, 0);
  run_error reason{ec::stopped, "the run was asked to stop", {}};
  auto answer =
    system.ask<void>(actor, end_run{run_status_kind::aborted, reason});
  EXPECT_TRUE(answer->value);
  auto prepared = monitor->prepared().unpacked();
  EXPECT_EQ(prepared.status, run_status_kind::aborted);
  EXPECT_EQ(prepared.error, reason);
  EXPECT_FALSE(monitor->is_over()); // the driver's business
  auto saved = result::from_path(store->path()).value();
  EXPECT_EQ(saved.status, run_status_kind::aborted);
  EXPECT_EQ(saved.error, reason);
}

TEST_F(committer_test, says_that_the_end_could_not_be_written) {
  begin();
  fs::remove_all(store->path());
  auto answer =
    system.ask<void>(actor, end_run{run_status_kind::finished, std::nullopt});
  EXPECT_EQ(answer->failure.code, ec::storage);
}

} // namespace troupe::internal::test
