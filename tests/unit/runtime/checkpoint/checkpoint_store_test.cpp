#include "troupe/runtime/store/checkpoint_store.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <limits>

#include "tests/support/checkpoint_files.hpp"
#include "tests/support/child.hpp"
#include "tests/support/small_disk.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/failpoint.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

bool mentions(const error& x, const std::string& text) {
  return x.message.find(text) != std::string::npos;
}

} // namespace

class checkpoint_store_test : public testing::Test {
protected:
  checkpoint_store open(const checkpoint_config& config = {}) {
    auto state = load_run(run.path()).value();
    return checkpoint_store::open(held(run.path()), {"r"}, config,
                                  state.value_or(saved_run{}))
      .value();
  }

  // Commits report *index* with one file of each of two ranks.
  expected<reported_checkpoint>
  commit(checkpoint_store& store, std::uint64_t index, metrics values = {}) {
    return store.commit(
      attempt, stage_batch(run.path(), attempt, index, name(index),
                           {{{"a", "rank 0"}}, {{"sub/b", "rank 1"}}}, values)
                 .value());
  }

  static std::string name(std::uint64_t index) {
    return "checkpoint_" + std::to_string(index);
  }

  fs::path folder(std::uint64_t index) const {
    return run.path() / "checkpoints" / name(index);
  }

  static void copy(const fs::path& from, const fs::path& to) {
    fs::create_directories(to / "sub");
    for (auto file : {"a", "sub/b", "manifest.json"})
      fs::copy_file(from / file, to / file);
  }

  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(
      fs::directory_iterator{run / "checkpoints"}, fs::directory_iterator{}));
  }

  const checkpoint_config keep_one{1, "", score_order::max};
  temporary_folder run;
  std::uint64_t attempt = 0;
};

TEST_F(checkpoint_store_test, joins_the_files_of_all_ranks) {
  auto store = open();
  attempt = store.begin_attempt(0).value();
  auto values = metrics{{"loss", std::numeric_limits<double>::quiet_NaN()}};
  auto done = commit(store, 4, values);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(done->data.path(), folder(4));
  EXPECT_EQ(bytes_of(folder(4) / "a"), "rank 0");
  EXPECT_EQ(bytes_of(folder(4) / "sub" / "b"), "rank 1");
  EXPECT_TRUE(done->data.verify());
  EXPECT_EQ(entries(), 1u); // no staging is left
  auto x = read_manifest(folder(4)).value();
  EXPECT_EQ(x.run_name, "r");
  EXPECT_EQ(x.index, 4u);
  EXPECT_EQ(x.name, name(4));
  EXPECT_EQ(x.values, (std::vector{values, values})); // of both ranks
  EXPECT_EQ(x.files.size(), 2u);
  EXPECT_EQ(open().resume_checkpoint().value(), *done);
  EXPECT_EQ(open().state().next_report, 5u);
}

// With move_files, a rank that is killed between the commit and the end of its
// report leaves its files where they were, as second names of the checkpoint's.
TEST_F(checkpoint_store_test, does_not_share_files_with_the_next_attempt) {
  auto store = open();
  attempt = store.begin_attempt(0).value();
  ASSERT_TRUE(commit(store, 0));
  auto mine = run / "model.pt";
  fs::create_hard_link(folder(0) / "sub" / "b", mine);
  fs::permissions(mine, fs::owner_read | fs::owner_write | fs::group_read);
  auto next = open();
  ASSERT_TRUE(next.resume_checkpoint().value());
  EXPECT_TRUE(next.take_events().empty());
  ASSERT_TRUE(next.begin_attempt(1));
  EXPECT_EQ(entries(), 1u); // No staging is left.
  write_bytes(mine, "half of the ne");
  EXPECT_EQ(bytes_of(folder(0) / "sub" / "b"), "rank 1");
  EXPECT_TRUE(checkpoint::from_directory(folder(0)).verify());
  EXPECT_EQ(fs::status(folder(0) / "sub" / "b").permissions(),
            fs::owner_read | fs::owner_write | fs::group_read);
  EXPECT_EQ(fs::hard_link_count(mine), 1u);
}

TEST_F(checkpoint_store_test, resumes_from_shared_files_that_it_cannot_copy) {
  auto store = open();
  attempt = store.begin_attempt(0).value();
  auto done = commit(store, 0).value();
  fs::create_hard_link(folder(0) / "a", run / "backup");
  auto next = open();
  write_bytes(run.path() / "checkpoints" / ".staging-separate", "");
  EXPECT_EQ(next.resume_checkpoint().value(), done);
  auto events = next.take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, "checkpoint_shared");
}

TEST_F(checkpoint_store_test, N6_looks_once_more_before_a_checkpoint_is_named) {
  auto taken = false;
  auto store = checkpoint_store::open(held(run.path()), {"r"}, {}, {}, {}, {},
                                      [&]() -> expected<void> {
                                        if (taken)
                                          return failure(ec::conflict, "taken");
                                        return {};
                                      })
                 .value();
  attempt = store.begin_attempt(0).value();
  ASSERT_TRUE(commit(store, 0));
  taken = true; // While the files of the next one are gathered.
  auto refused = commit(store, 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ec::conflict);
  EXPECT_FALSE(fs::exists(folder(1)));
  EXPECT_EQ(entries(), 1u);
}

// The driver stands still; the next one takes the run over, and gives the name
// that is to go to a checkpoint of its own.
TEST_F(checkpoint_store_test,
       removes_no_checkpoint_of_the_driver_that_is_next) {
  auto is_taken = failure(ec::conflict, "taken");
  for (auto moment : {"after the state", "before the look", "after the look"}) {
    for (auto notices : {true, false}) {
      SCOPED_TRACE(std::string{moment} + (notices ? ", seen" : ", not seen"));
      fs::remove(run / "state.json");
      fs::remove_all(run / "checkpoints");
      auto stands_still = [&](const char* here) {
        return here == std::string{moment};
      };
      auto commits = false;
      auto taken = false;
      auto take_over = [&] {
        fs::rename(folder(0), run / "theirs");
        auto next = open(keep_one);
        auto theirs = next.begin_attempt(9).value();
        ASSERT_TRUE(next.commit(
          theirs,
          stage_batch(run.path(), theirs, 9, name(0), {{{"a", "B"}}}).value()));
        fs::remove_all(run / "theirs");
        taken = true;
      };
      auto save = [&](const saved_run& x) {
        auto saved = save_run(x, run.path());
        if (commits && stands_still("after the state"))
          take_over();
        return saved;
      };
      auto looks = 0;
      auto check = [&]() -> expected<void> {
        auto evicts = commits && ++looks == 2;
        if (evicts && stands_still("before the look"))
          take_over();
        if (taken && notices)
          return is_taken;
        if (evicts && stands_still("after the look"))
          take_over();
        return {};
      };
      auto store = checkpoint_store::open(held(run.path()), {"r"}, keep_one, {},
                                          save, {}, check)
                     .value();
      attempt = store.begin_attempt(0).value();
      ASSERT_TRUE(commit(store, 0));
      commits = true;
      EXPECT_TRUE(commit(store, 1));
      commits = false;
      ASSERT_TRUE(taken);
      EXPECT_EQ(bytes_of(folder(0) / "a"), "B");
      EXPECT_EQ(read_manifest(folder(0)).value().index, 9u);
    }
  }
}

TEST_F(checkpoint_store_test, removes_no_staging_of_the_driver_that_is_next) {
  auto taken = false;
  auto store = checkpoint_store::open(
                 held(run.path()), {"r"}, {}, {},
                 [&](const saved_run& x) {
                   auto saved = save_run(x, run.path());
                   taken = true;
                   return saved;
                 },
                 {},
                 [&]() -> expected<void> {
                   if (taken)
                     return failure(ec::conflict, "taken");
                   return {};
                 })
                 .value();
  auto theirs = run.path() / "checkpoints" / ".staging-7-0";
  fs::create_directories(theirs);
  ASSERT_TRUE(store.begin_attempt(0));
  EXPECT_TRUE(fs::exists(theirs));
  ASSERT_TRUE(store.finish(run_status_kind::errored, std::nullopt, 0));
  EXPECT_TRUE(fs::exists(theirs));
}

TEST_F(checkpoint_store_test, sets_aside_nothing_of_the_driver_that_is_next) {
  {
    auto store = open();
    attempt = store.begin_attempt(0).value();
    ASSERT_TRUE(commit(store, 0));
  }
  write_bytes(folder(0) / "a", "rotten");
  auto take_over = [&](const store_event&, std::uint64_t) -> expected<void> {
    fs::rename(folder(0), run / "rotten");
    fs::create_directory(folder(0));
    write_bytes(folder(0) / "a", "B");
    return {};
  };
  auto state = load_run(run.path()).value().value();
  auto store =
    checkpoint_store::open(held(run.path()), {"r"}, {}, state, {}, take_over)
      .value();
  auto resume = store.resume_checkpoint();
  ASSERT_FALSE(resume);
  EXPECT_TRUE(mentions(resume.error(), folder(0).string()));
  EXPECT_EQ(bytes_of(folder(0) / "a"), "B");
}

TEST_F(checkpoint_store_test, names_no_checkpoint_in_a_folder_it_lost) {
  auto store = open();
  attempt = store.begin_attempt(0).value();
  ASSERT_TRUE(commit(store, 0));
  auto batch =
    stage_batch(run.path(), attempt, 1, name(1), {{{"a", "1"}}}).value();
  fs::rename(run / "checkpoints", run / "before");
  for (auto there : {false, true}) {
    if (there)
      fs::create_directory(run / "checkpoints");
    auto done = store.commit(attempt, batch);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, ec::storage);
    EXPECT_TRUE(mentions(done.error(), (run / "checkpoints").string()));
    EXPECT_FALSE(store.begin_attempt(1));
  }
  EXPECT_TRUE(fs::is_empty(run / "checkpoints"));
  EXPECT_EQ(load_run(run.path()).value()->checkpoints.size(), 1u);
  EXPECT_EQ(bytes_of(run / "before" / name(0) / "a"), "rank 0");
}

TEST_F(checkpoint_store_test, removes_nothing_else_that_has_the_name) {
  auto store = open(keep_one);
  attempt = store.begin_attempt(0).value();
  ASSERT_TRUE(commit(store, 0));
  fs::remove_all(folder(0));
  fs::create_directory(folder(0));
  write_bytes(folder(0) / "notes", "of a user");
  ASSERT_TRUE(commit(store, 1));
  EXPECT_EQ(bytes_of(folder(0) / "notes"), "of a user");
  auto events = store.take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, "checkpoint_not_removed");
  auto next = open(keep_one);
  ASSERT_TRUE(next.resume_checkpoint().value());
  EXPECT_TRUE(next.state().doomed.empty());
  EXPECT_TRUE(fs::exists(folder(0)));
}

TEST_F(checkpoint_store_test,
       makes_room_only_for_names_that_retention_dropped) {
  auto store = open(keep_one);
  std::uint64_t first = 0;
  store.hold_from([&] { return first; });
  attempt = store.begin_attempt(0).value();
  for (auto index : {0, 1, 2})
    ASSERT_TRUE(commit(store, index));
  EXPECT_TRUE(store.make_room(name(0)));
  EXPECT_TRUE(fs::exists(folder(0)));      // Callbacks may read it.
  first = 2;                               // They have answered.
  fs::remove(folder(1) / "manifest.json"); // So it cannot be removed.
  EXPECT_TRUE(store.make_room(name(0)));
  EXPECT_FALSE(fs::exists(folder(0)));
  for (auto index : {1, 2}) {
    auto room = store.make_room(name(index));
    ASSERT_FALSE(room) << index;
    EXPECT_EQ(room.error().code, ec::conflict);
    EXPECT_TRUE(fs::exists(folder(index) / "a"));
  }
  EXPECT_TRUE(store.make_room("another"));
}

TEST_F(checkpoint_store_test, notices_a_flip_of_any_byte) {
  auto store = open();
  attempt = store.begin_attempt(0).value();
  auto done = commit(store, 0, {{"loss", 0.5}}).value();
  for (auto file : {"a", "sub/b", "manifest.json"}) {
    auto path = folder(0) / file;
    auto bytes = bytes_of(path);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      auto damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
      write_bytes(path, damaged);
      auto ok = done.data.verify();
      ASSERT_FALSE(ok) << file << " byte " << i;
      EXPECT_EQ(ok.error().code, ec::corrupt);
      EXPECT_TRUE(mentions(ok.error(), path.string())) << ok.error().message;
    }
    write_bytes(path, bytes.substr(0, bytes.size() - 1));
    EXPECT_TRUE(mentions(done.data.verify().error(), path.string()));
    write_bytes(path, bytes);
  }
  EXPECT_TRUE(done.data.verify());
}

TEST_F(checkpoint_store_test, notices_missing_files) {
  auto store = open();
  attempt = store.begin_attempt(0).value();
  auto done = commit(store, 0).value();
  ASSERT_TRUE(done.data.set_metadata({{"note", "may change"}}));
  EXPECT_TRUE(done.data.verify());
  fs::remove(folder(0) / "a");
  EXPECT_TRUE(mentions(done.data.verify().error(), "a is missing"));
  fs::remove(folder(0) / "manifest.json");
  EXPECT_TRUE(mentions(done.data.verify().error(), "no run committed it"));
  fs::remove_all(folder(0));
  EXPECT_TRUE(mentions(done.data.verify().error(), "no checkpoint folder"));
}

// A2: what the manifest lists is whole or not; the rest is not ours.
TEST_F(checkpoint_store_test, notes_strangers_in_a_checkpoint_and_keeps_it) {
  {
    auto store = open();
    attempt = store.begin_attempt(0).value();
    ASSERT_TRUE(commit(store, 0));
    ASSERT_TRUE(commit(store, 1));
  }
  write_bytes(folder(1) / "README", "mine");
  write_bytes(folder(1) / "sub" / ".nfs0001", "");
  write_bytes(folder(1) / ".metadata.json.a1b2c3", "of a killed process");
  auto store = open();
  EXPECT_EQ(store.resume_checkpoint().value()->data.name(), name(1));
  auto events = store.take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, "checkpoint_strangers");
  EXPECT_EQ(events[0].fields.at("reason"),
            metric_value{"its manifest does not list README, sub/.nfs0001"});
}

// A3: nothing is removed that the state does not name as doomed.
TEST_F(checkpoint_store_test, waits_for_no_pipe_in_a_folder_of_a_user) {
  fs::create_directories(run / "checkpoints/mine");
  ASSERT_EQ(::mkfifo((run / "checkpoints/mine/manifest.json").c_str(), 0600),
            0);
  auto store = open();
  auto events = store.take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, "checkpoint_unknown");
}

TEST_F(checkpoint_store_test, leaves_a_copy_that_a_user_made) {
  {
    auto store = open({1, "", score_order::max});
    attempt = store.begin_attempt(0).value();
    ASSERT_TRUE(commit(store, 0));
    copy(folder(0), run.path() / "checkpoints" / "keep_0");
    ASSERT_TRUE(commit(store, 1));
    copy(folder(1), run.path() / "checkpoints" / "keep_1");
  }
  for (auto lost_state : {false, true}) {
    if (lost_state) // Then every folder is one that no state names.
      fs::remove(run / "state.json");
    auto store = open({1, "", score_order::max});
    EXPECT_EQ(store.resume_checkpoint().value()->data.name(), name(1));
    EXPECT_TRUE(fs::exists(run.path() / "checkpoints" / "keep_0" / "a"));
    EXPECT_TRUE(fs::exists(run.path() / "checkpoints" / "keep_1" / "a"));
    auto events = store.take_events();
    EXPECT_EQ(
      std::ranges::count(events, "checkpoint_unknown", &store_event::kind), 2);
  }
}

TEST_F(checkpoint_store_test, names_file_and_ranks_of_a_conflict) {
  auto store = open();
  attempt = store.begin_attempt(0).value();
  auto batch = stage_batch(run.path(), 0, 0, "c",
                           {{{"a", "1"}}, {{"b", "2"}}, {{"a", "3"}}})
                 .value();
  auto done = store.commit(0, batch);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ec::conflict);
  EXPECT_TRUE(mentions(done.error(), "a"));
  EXPECT_TRUE(mentions(done.error(), "rank 0"));
  EXPECT_TRUE(mentions(done.error(), "rank 2"));
  EXPECT_TRUE(store.registry().all().empty());
}

TEST_F(checkpoint_store_test, commits_more_files_than_a_message_takes) {
  auto store = open();
  attempt = store.begin_attempt(0).value();
  file_texts many;
  for (int i = 0; i < 4000; ++i)
    many[std::string(200, 'x') + std::to_string(i)] = "1";
  auto batch = stage_batch(run.path(), 0, 0, "c", {many, {{"a", "2"}}}).value();
  EXPECT_EQ(batch.parts[0]->listed, many.size());
  auto done = store.commit(0, batch);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(read_manifest(done->data.path())->files.size(), many.size() + 1);
  EXPECT_TRUE(done->data.verify());
  many = {{many.begin()->first, "3"}};
  batch = stage_batch(run.path(), 0, 1, "d", {many, {{"a", "2"}}}).value();
  batch.parts[0]->listed = 5; // there is no such list
  EXPECT_EQ(store.commit(0, batch).error().code, ec::storage);
}

TEST_F(checkpoint_store_test, refuses_bad_names_and_names_in_use) {
  auto store = open();
  attempt = store.begin_attempt(0).value();
  auto batch = [&](const std::string& name, const std::string& file = "a") {
    return stage_batch(run.path(), 0, 1, name, {{{file, "1"}}}).value();
  };
  for (auto bad : {"", "a/b", ".hidden", "..", "new\nline"})
    EXPECT_EQ(store.commit(0, batch(bad)).error().code, ec::invalid_argument)
      << bad;
  auto moved = batch("c");
  moved.parts[0]->files[0].path = "../a";
  EXPECT_EQ(store.commit(0, moved).error().code, ec::invalid_argument);
  auto changed = batch("c");
  changed.parts[0]->files[0].size = 99;
  EXPECT_EQ(store.commit(0, changed).error().code, ec::corrupt);
  ASSERT_TRUE(store.commit(0, batch("c")));
  auto again = stage_batch(run.path(), 0, 2, "c", {{{"a", "1"}}}).value();
  EXPECT_EQ(store.commit(0, again).error().code, ec::conflict);
  fs::create_directory(run.path() / "checkpoints" / "occupied");
  auto onto = stage_batch(run.path(), 0, 3, "occupied", {{{"a", "1"}}}).value();
  EXPECT_EQ(store.commit(0, onto).error().code, ec::conflict);
  EXPECT_TRUE(fs::is_empty(run.path() / "checkpoints" / "occupied"));
}

TEST_F(checkpoint_store_test, accepts_nothing_of_an_earlier_attempt) {
  auto store = open();
  attempt = store.begin_attempt(0).value();
  EXPECT_EQ(attempt, 0u);
  auto late = stage_batch(run.path(), 0, 0, "late", {{{"a", "1"}}}).value();
  EXPECT_EQ(store.begin_attempt(0).value(), 1u);
  auto done = store.commit(0, late);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ec::stopped);
  EXPECT_EQ(entries(), 0u); // its staged files are removed
  EXPECT_EQ(open().begin_attempt(0).value(), 2u);
}

TEST_F(checkpoint_store_test, removes_checkpoints_that_retention_drops) {
  auto store = open({1, "acc", score_order::max});
  attempt = store.begin_attempt(0).value();
  for (auto [index, acc] : {std::pair{0, 0.5}, {1, 0.9}, {2, 0.1}, {3, 0.2}})
    ASSERT_TRUE(
      commit(store, static_cast<std::uint64_t>(index), {{"acc", acc}}));
  EXPECT_FALSE(fs::exists(folder(0)));
  EXPECT_TRUE(fs::exists(folder(1)));
  EXPECT_FALSE(fs::exists(folder(2)));
  EXPECT_TRUE(fs::exists(folder(3)));
  EXPECT_EQ(entries(), 2u);
  EXPECT_TRUE(store.take_events().empty());
}

TEST_F(checkpoint_store_test, keeps_what_callbacks_may_still_read) {
  auto store = open(keep_one);
  std::uint64_t first = 0;
  store.hold_from([&] { return first; });
  attempt = store.begin_attempt(0).value();
  for (std::uint64_t i = 0; i < 4; ++i)
    ASSERT_TRUE(commit(store, i));
  EXPECT_EQ(store.registry().all().size(), 1u);
  EXPECT_EQ(load_run(run.path()).value()->doomed.size(), 3u);
  for (std::uint64_t i = 0; i < 4; ++i)
    EXPECT_TRUE(checkpoint::from_directory(folder(i)).verify()) << i;
  first = 2; // They have answered for 0 and 1.
  ASSERT_TRUE(commit(store, 4));
  EXPECT_EQ(entries(), 3u);
  EXPECT_TRUE(fs::exists(folder(2)));
  first = 3;
  ASSERT_TRUE(store.resume_checkpoint()); // Ranks have failed.
  EXPECT_EQ(entries(), 2u);
  EXPECT_TRUE(fs::exists(folder(3)));
  first = 5;
  ASSERT_TRUE(store.finish(run_status_kind::finished, {}, 5));
  EXPECT_EQ(entries(), 1u);
  EXPECT_TRUE(load_run(run.path()).value()->doomed.empty());
  EXPECT_TRUE(store.take_events().empty());
}

TEST_F(checkpoint_store_test, the_end_and_the_next_start_leave_none_of_those) {
  for (auto crash : {false, true}) {
    auto store = open(keep_one);
    store.hold_from([] { return 0; });
    attempt = store.begin_attempt(0).value();
    auto next = store.state().next_report;
    for (auto i = next; i < next + 3; ++i)
      ASSERT_TRUE(commit(store, i));
    ASSERT_TRUE(store.finish(run_status_kind::preempted, {}, next + 3));
    EXPECT_GE(entries(), 3u);
    if (crash)
      ASSERT_TRUE(open(keep_one).resume_checkpoint());
    else
      store.remove_held();
    EXPECT_EQ(entries(), 1u) << crash;
  }
}

TEST_F(checkpoint_store_test, a_name_that_retention_dropped_can_be_reused) {
  auto store = open(keep_one);
  store.hold_from([] { return 0; });
  attempt = store.begin_attempt(0).value();
  for (std::uint64_t i = 0; i < 4; ++i) {
    auto name = i % 2 == 0 ? "even" : "odd";
    auto batch = stage_batch(run.path(), attempt, i, name,
                             {{{"a", std::to_string(i)}}}, {});
    auto done = store.commit(attempt, batch.value());
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(bytes_of(done->data.path() / "a"), std::to_string(i));
  }
  EXPECT_EQ(entries(), 2u);
}

TEST_F(checkpoint_store_test, resumes_from_the_previous_when_one_is_rotten) {
  {
    auto store = open();
    attempt = store.begin_attempt(0).value();
    for (std::uint64_t i = 0; i < 3; ++i)
      ASSERT_TRUE(commit(store, i));
  }
  write_bytes(folder(2) / "a", "rank 9");
  fs::remove_all(folder(1));
  auto store = open();
  auto resume = store.resume_checkpoint().value();
  ASSERT_TRUE(resume);
  EXPECT_EQ(resume->data.name(), name(0));
  auto events = store.take_events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, "checkpoint_rotten");
  EXPECT_EQ(events[0].fields.at("name"), metric_value{name(2)});
  EXPECT_EQ(events[1].fields.at("name"), metric_value{name(1)});
  EXPECT_TRUE(
    fs::exists(run.path() / "checkpoints" / (".rotten-" + name(2)) / "a"));
  auto again = open();
  EXPECT_EQ(again.resume_checkpoint().value(), resume);
  EXPECT_TRUE(again.take_events().empty());
  // The name is free again, and indices keep growing (N3).
  EXPECT_EQ(again.state().next_report, 3u);
  attempt = again.begin_attempt(0).value();
  EXPECT_TRUE(again.commit(
    attempt,
    stage_batch(run.path(), attempt, 3, name(2), {{{"a", "1"}}}).value()));
}

// A1: what cannot be looked up is not missing.
TEST_F(checkpoint_store_test, strikes_no_checkpoint_while_look_ups_fail) {
  {
    auto store = open();
    attempt = store.begin_attempt(0).value();
    ASSERT_TRUE(commit(store, 0));
    ASSERT_TRUE(commit(store, 1));
  }
  auto failures = 0;
  auto passes = 0;
  for (auto nth = 1; nth < 200; ++nth) {
    auto state = load_run(run.path()).value().value();
    ASSERT_TRUE(
      arm_failpoint("storage.look_up:" + std::to_string(nth) + "=eio"));
    auto store = checkpoint_store::open(held(run.path()), {"r"}, {}, state);
    auto resume =
      store ? store->resume_checkpoint() : tl::unexpected{store.error()};
    auto again = load_run(run.path());
    ASSERT_TRUE(arm_failpoint(""));
    EXPECT_EQ(load_run(run.path()).value()->checkpoints.size(), 2u) << nth;
    if (resume) {
      EXPECT_EQ((*resume)->data.name(), name(1));
      EXPECT_TRUE(store->take_events().empty()) << nth;
    } else {
      ++failures;
      EXPECT_EQ(resume.error().code, ec::storage) << nth;
    }
    // One of them only leaves staging folders to the next start.
    if (resume && again && ++passes == 3)
      break;
  }
  EXPECT_GE(failures, 4);
  EXPECT_LT(failures, 199);
  EXPECT_EQ(entries(), 2u);
}

TEST_F(checkpoint_store_test, adopts_a_whole_checkpoint_newer_than_its_state) {
  {
    auto store = open();
    attempt = store.begin_attempt(0).value();
    ASSERT_TRUE(commit(store, 0));
  }
  auto before = load_run(run.path()).value().value();
  {
    auto store = open();
    ASSERT_TRUE(commit(store, 1));
  }
  ASSERT_TRUE(save_run(before, run.path())); // as if the crash came before
  auto store = open();
  EXPECT_EQ(store.resume_checkpoint().value()->data.name(), name(1));
  EXPECT_EQ(store.take_events().at(0).kind, "checkpoint_adopted");
  EXPECT_EQ(store.state().next_report, 2u);
  EXPECT_EQ(load_run(run.path()).value()->checkpoints.size(), 2u);
}

TEST_F(checkpoint_store_test, cleans_up_what_crashes_left) {
  {
    auto store = open();
    attempt = store.begin_attempt(0).value();
    for (std::uint64_t i = 0; i < 3; ++i)
      ASSERT_TRUE(commit(store, i));
  }
  auto state = load_run(run.path()).value().value();
  state.checkpoints.erase(state.checkpoints.begin()); // evicted, not removed
  state.doomed = {{name(0), 0, 0}, {name(1), 7, 0}};  // one is another's now
  ASSERT_TRUE(save_run(state, run.path()));
  auto checkpoints = run.path() / "checkpoints";
  fs::create_directories(checkpoints / ".staging-0-9" / "rank_0");
  fs::create_directories(checkpoints / ".evicted-x" / "rank_0");
  fs::create_directories(checkpoints / "mine");
  auto store = open();
  EXPECT_TRUE(fs::exists(folder(0))); // until the newest is seen to be whole
  EXPECT_EQ(store.resume_checkpoint().value()->data.name(), name(2));
  auto events = store.take_events();
  EXPECT_FALSE(fs::exists(folder(0)));
  EXPECT_TRUE(fs::exists(folder(1)));
  EXPECT_FALSE(fs::exists(checkpoints / ".staging-0-9"));
  EXPECT_FALSE(fs::exists(checkpoints / ".evicted-x"));
  EXPECT_TRUE(fs::exists(checkpoints / "mine")); // not ours: left alone
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(
    std::ranges::count(events, "checkpoint_removed", &store_event::kind), 1);
  EXPECT_EQ(
    std::ranges::count(events, "checkpoint_unknown", &store_event::kind), 1);
}

TEST_F(checkpoint_store_test, moves_no_rotten_one_before_its_event_is_stored) {
  {
    auto store = open();
    attempt = store.begin_attempt(0).value();
    ASSERT_TRUE(commit(store, 0));
    ASSERT_TRUE(commit(store, 1));
  }
  write_bytes(folder(1) / "a", "rotten");
  auto stores = false;
  std::vector<std::string> stored;
  auto state = load_run(run.path()).value().value();
  auto log = [&](const store_event& x, std::uint64_t next) -> expected<void> {
    if (!stores)
      return failure(ec::storage, "the disk is full");
    EXPECT_EQ(to_json(load_run(run.path()).value().value()), to_json(state));
    EXPECT_TRUE(fs::exists(folder(1)));
    stored.push_back(x.kind + " of " + std::to_string(next));
    return {};
  };
  auto store =
    checkpoint_store::open(held(run.path()), {"r"}, {}, state, {}, log).value();
  state = load_run(run.path()).value().value();
  EXPECT_EQ(store.resume_checkpoint().error().message, "the disk is full");
  EXPECT_TRUE(fs::exists(folder(1)));
  stores = true;
  EXPECT_EQ(store.resume_checkpoint().value()->data.name(), name(0));
  EXPECT_EQ(stored, (std::vector<std::string>{"checkpoint_rotten of 1"}));
  EXPECT_FALSE(fs::exists(folder(1)));
}

// A driver dies while it removes what retention let go, the newest rots, and
// the next driver dies, too, while it takes the other back.
TEST_F(checkpoint_store_test,
       reinstates_checkpoints_that_were_dropped_for_a_rotten_one) {
  auto config = checkpoint_config{1, "", score_order::max};
  auto resume = [&] {
    auto store = open(config);
    return store.resume_checkpoint().value();
  };
  for (auto first : {"commit.state_saved", "commit.evicting"}) {
    for (auto second : {"", "replace.written:2", "rotten.forgotten",
                        "rotten.renamed", "replace.written:3", "rotten.kept"}) {
      SCOPED_TRACE(std::string{first} + " then " + second);
      fs::remove(run / "state.json");
      fs::remove_all(run / "checkpoints");
      {
        auto store = open(config);
        attempt = store.begin_attempt(0).value();
        ASSERT_TRUE(commit(store, 0, {{"x", 1}}));
      }
      auto status = run_in_child([&] {
        auto store = open(config);
        attempt = store.begin_attempt(0).value();
        (void) arm_failpoint(first);
        (void) commit(store, 1);
      });
      ASSERT_TRUE(WIFSIGNALED(status));
      write_bytes(folder(1) / "a", "rotten");
      status = run_in_child([&] {
        (void) arm_failpoint(second);
        (void) resume();
      });
      ASSERT_EQ(WIFSIGNALED(status), *second != '\0');
      auto found = resume();
      ASSERT_TRUE(found);
      EXPECT_EQ(found->data.name(), name(0));
      EXPECT_EQ(found->values, (metrics{{"x", 1}}));
      EXPECT_EQ(resume(), found);
      EXPECT_EQ(entries(), 2u); // it and the rotten one
    }
  }
}

// A driver may die after it removed some of the files, too.
TEST_F(checkpoint_store_test, takes_back_nothing_that_is_half_removed) {
  auto config = checkpoint_config{1, "", score_order::max};
  {
    auto store = open(config);
    attempt = store.begin_attempt(0).value();
    ASSERT_TRUE(commit(store, 0));
  }
  auto status = run_in_child([&] {
    auto store = open(config);
    attempt = store.begin_attempt(0).value();
    (void) arm_failpoint("commit.evicting");
    (void) commit(store, 1);
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  fs::remove(run.path() / "checkpoints" / (".evicted-0-" + name(0)) / "a");
  write_bytes(folder(1) / "a", "rotten");
  auto store = open(config);
  EXPECT_FALSE(store.resume_checkpoint().value());
  EXPECT_FALSE(fs::exists(folder(0)));
  auto events = store.take_events();
  EXPECT_EQ(
    std::ranges::count(events, "checkpoint_reinstated", &store_event::kind), 0);
}

// The checkpoints that were kept for their scores are older than the one that
// was let go.
TEST_F(checkpoint_store_test,
       reinstates_dropped_checkpoints_beside_better_ones) {
  auto config = checkpoint_config{1, "acc", score_order::max};
  {
    auto store = open(config);
    attempt = store.begin_attempt(0).value();
    ASSERT_TRUE(commit(store, 3, {{"acc", 0.9}}));
    ASSERT_TRUE(commit(store, 8, {{"acc", 0.1}}));
  }
  auto status = run_in_child([&] {
    auto store = open(config);
    attempt = store.begin_attempt(0).value();
    (void) arm_failpoint("commit.state_saved");
    (void) commit(store, 9, {{"acc", 0.2}});
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  write_bytes(folder(9) / "a", "rotten");
  status = run_in_child([&] {
    (void) arm_failpoint("rotten.forgotten");
    (void) open(config).resume_checkpoint();
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(open(config).resume_checkpoint().value()->data.name(), name(8));
}

TEST_F(checkpoint_store_test, keeps_the_last_three_rotten_checkpoints) {
  for (std::uint64_t i = 0; i < 5; ++i) {
    auto store = open();
    attempt = store.begin_attempt(0).value();
    ASSERT_TRUE(store.commit(
      attempt,
      stage_batch(run.path(), attempt, i, "same", {{{"a", "1"}}}).value()));
    write_bytes(run.path() / "checkpoints" / "same" / "a", "2");
    EXPECT_FALSE(store.resume_checkpoint().value());
  }
  EXPECT_EQ(entries(), 3u);
  EXPECT_EQ(load_run(run.path()).value()->rotten.size(), 3u);
}

// A7: NFS keeps what is open somewhere; here it is a mounted file system.
TEST_F(checkpoint_store_test, ends_and_starts_beside_staging_that_stays) {
  auto stuck = run.path() / "checkpoints" / ".staging-0-9" / "rank_0";
  small_disk disk{stuck, "64k"};
  if (!disk)
    GTEST_SKIP() << "mounting a small tmpfs: " << disk.reason();
  auto store = open();
  auto is_noted = [&] {
    auto events = store.take_events();
    return std::ranges::count(events, "staging_not_removed", &store_event::kind)
           == 1;
  };
  EXPECT_TRUE(is_noted());
  attempt = store.begin_attempt(0).value();
  EXPECT_TRUE(is_noted());
  EXPECT_TRUE(store.finish(run_status_kind::finished, std::nullopt, 0));
  EXPECT_TRUE(is_noted());
  EXPECT_EQ(load_run(run.path()).value()->status, run_status_kind::finished);
}

TEST_F(checkpoint_store_test, keeps_old_checkpoints_when_the_disk_is_full) {
  small_disk disk{run / "disk", "256k"};
  if (!disk)
    GTEST_SKIP() << "mounting a small tmpfs: " << disk.reason();
  auto store =
    checkpoint_store::open(held(disk.path()), {"r"}, {1, "", {}}, {}).value();
  ASSERT_TRUE(store.begin_attempt(0));
  auto first = store.commit(
    0, stage_batch(disk.path(), 0, 0, "first", {{{"a", "1"}}}).value());
  ASSERT_TRUE(first);
  std::uint64_t index = 1;
  auto refused = 0, accepted = 0;
  // Leaves less and less room for what the commit itself writes.
  for (std::size_t room = 24 * 1024; room > 0; room -= 4096, ++index) {
    auto filler = disk.path() / "filler";
    auto batch = stage_batch(disk.path(), 0, index,
                             "next_" + std::to_string(index), {{{"a", "2"}}})
                   .value();
    auto free = fs::space(disk.path()).available;
    ASSERT_GT(free, room);
    write_bytes(filler, std::string(free - room, 'x'));
    auto latest = store.registry().latest()->data;
    auto done = store.commit(0, batch);
    fs::remove(filler);
    if (done) {
      ++accepted;
      continue;
    }
    ++refused;
    EXPECT_EQ(done.error().code, ec::storage);
    EXPECT_TRUE(mentions(done.error(), "No space left on device"));
    EXPECT_EQ(store.registry().latest()->data, latest);
    EXPECT_TRUE(latest.verify());
    auto saved = load_run(disk.path()).value().value();
    EXPECT_EQ(saved.checkpoints.back().data, latest);
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(accepted, 0);
}

TEST_F(checkpoint_store_test, refuses_the_commit_when_any_fsync_fails) {
  {
    auto store = open({1, "", score_order::max});
    attempt = store.begin_attempt(0).value();
    ASSERT_TRUE(commit(store, 0));
  }
  std::uint64_t index = 1;
  auto failures = 0, kept = 0;
  for (auto nth = 1; nth < 30; ++nth, ++index) {
    auto store = open({1, "", score_order::max});
    auto latest = store.resume_checkpoint().value()->index;
    attempt = store.begin_attempt(0).value();
    auto batch = stage_batch(run.path(), attempt, index, name(index),
                             {{{"a", "1"}}, {{"sub/b", "2"}}})
                   .value();
    ASSERT_TRUE(
      arm_failpoint("storage.sync_file:" + std::to_string(nth) + "=eio"));
    auto done = store.commit(attempt, batch);
    ASSERT_TRUE(arm_failpoint(""));
    if (done)
      break;
    ++failures;
    EXPECT_TRUE(mentions(done.error(), "Input/output error"));
    EXPECT_EQ(store.registry().latest()->index, latest);
    // Only where the new one is whole already it may be found again.
    auto found = open().resume_checkpoint().value()->index;
    EXPECT_TRUE(found == latest || found == index) << nth;
    kept += found == index;
  }
  // Manifest, folder, its subfolder, checkpoints/, state.json, the run's
  // folder; the last three after the rename.
  EXPECT_GE(failures, 6);
  EXPECT_LT(failures, 29);
  EXPECT_EQ(kept, 3);
}

TEST_F(checkpoint_store_test, notes_once_that_checkpoints_have_no_score) {
  auto store = open({2, "val/acc", score_order::max});
  attempt = store.begin_attempt(0).value();
  metrics many{{"val/accuracy", 0.9}, {"words", "many"}};
  for (int i = 0; i < 20; ++i)
    many["z" + std::to_string(i)] = i;
  for (std::uint64_t index = 0; index < 4; ++index)
    ASSERT_TRUE(commit(store, index, many));
  auto events = store.take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, "checkpoint_unscored");
  auto reason = to_string(events[0].fields.at("reason"));
  EXPECT_NE(reason.find("'val/acc'"), reason.npos) << reason;
  EXPECT_NE(reason.find("it has val/accuracy, z0"), reason.npos) << reason;
  EXPECT_NE(reason.find("13 more"), reason.npos) << reason;
  EXPECT_NE(reason.find("the newest are kept"), reason.npos) << reason;
  EXPECT_FALSE(fs::exists(folder(1)));
  EXPECT_TRUE(fs::exists(folder(2)));
  EXPECT_TRUE(fs::exists(folder(3)));
}

TEST_F(checkpoint_store_test, notes_that_a_score_is_not_a_number) {
  auto store = open({2, "acc", score_order::max});
  attempt = store.begin_attempt(0).value();
  ASSERT_TRUE(commit(store, 0, {{"acc", 0.5}}));
  EXPECT_TRUE(store.take_events().empty());
  ASSERT_TRUE(commit(store, 1, {{"acc", "0.7"}}));
  auto reason = to_string(store.take_events().at(0).fields.at("reason"));
  EXPECT_NE(reason.find("'0.7'"), reason.npos) << reason;
  EXPECT_NE(reason.find("below those that have one"), reason.npos) << reason;
}

// The run's folder is renamed, and another one, a link or nothing gets its
// name, right after any look of the store at whether the run is still its own.
class replaced_folder_test : public testing::TestWithParam<const char*> {
protected:
  using texts = std::map<std::string, std::string>;

  // What is in *folder*: the text of each file, the mode of each folder.
  static texts contents_of(const fs::path& folder) {
    texts result;
    for (auto& x : fs::recursive_directory_iterator{folder}) {
      struct stat found {};
      EXPECT_EQ(::lstat(x.path().c_str(), &found), 0);
      result[x.path().string()] = S_ISREG(found.st_mode)
                                    ? bytes_of(x.path())
                                    : std::to_string(found.st_mode);
    }
    return result;
  }

  // A run with checkpoint c0 that has got as far as the one that is replaced.
  static void begin(const fs::path& run) {
    fs::create_directory(run);
    auto folder = held(run);
    auto store = open(held(run), folder, {});
    ASSERT_EQ(store.begin_attempt(0).value(), 0u);
    ASSERT_TRUE(
      store.commit(0, stage_batch(run, 0, 0, "c0", {{{"a", "0"}}}).value()));
    auto other = stage_batch(run, 1, 1, "c1", {{{"a", "theirs"}}});
    ASSERT_TRUE(other);
    write_bytes(run / "checkpoints/.staging-1-1/rank_0/s", "theirs");
    fs::create_directory(run / "checkpoints/.evicted-0-c0");
    write_bytes(run / "checkpoints/.evicted-0-c0/a", "theirs");
  }

  static checkpoint_store open(held_folder folder, const held_folder& state_in,
                               checkpoint_store::check_function check) {
    auto state = load_run(folder.path()).value().value_or(saved_run{});
    return checkpoint_store::open(
             std::move(folder), {"r"}, {1, "", score_order::max}, state,
             [&](const saved_run& x) {
               return state_in.replace_file("state.json", to_json(x));
             },
             {}, std::move(check))
      .value();
  }

  void replace() {
    fs::rename(run_, storage_ / "moved");
    begin(storage_ / "other");
    if (GetParam() == std::string{"another_run"})
      fs::rename(storage_ / "other", run_);
    else if (GetParam() == std::string{"a_link"})
      fs::create_directory_symlink(storage_ / "other", run_);
    auto other = fs::exists(run_) ? run_ : storage_ / "other";
    before_ = contents_of(other);
  }

  temporary_folder storage_;
  fs::path run_ = storage_ / "run";
  texts before_;
};

TEST_P(replaced_folder_test, nothing_is_touched_in_what_has_its_path) {
  auto replaced = true;
  auto moments = 0;
  for (auto nth = 1; replaced; ++nth) {
    SCOPED_TRACE("look " + std::to_string(nth));
    for (auto& x : fs::directory_iterator{storage_.path()})
      fs::remove_all(x.path());
    begin(run_);
    auto folder = held(run_);
    auto looks = 0;
    auto is_rotten = false;
    auto check = [&]() -> expected<void> {
      if (++looks == nth)
        replace();
      return {};
    };
    {
      auto store = open(held(run_), folder, check);
      (void) store.resume_checkpoint();
      (void) store.begin_attempt(1);
      for (std::uint64_t i = 1; i < 3; ++i) {
        auto staged = staged_checkpoint::create(run_, 1, 0, folder.inode());
        auto late = looks >= nth;
        EXPECT_EQ(late, !staged);
        if (late)
          break;
        write_bytes(staged->path() / "a", "1");
        report_batch batch;
        batch.index = i;
        batch.values.resize(1);
        batch.parts.push_back(staged->seal(i, "c" + std::to_string(i)).value());
        (void) store.commit(1, batch);
      }
      auto newest = store.registry().latest();
      is_rotten = looks < nth;
      if (is_rotten) { // the only one that is kept
        write_bytes(newest->data.path() / "a", "rotten");
        (void) store.resume_checkpoint();
      }
      (void) store.finish(run_status_kind::errored, std::nullopt, 3);
    }
    replaced = looks >= nth;
    if (!replaced)
      break;
    ++moments;
    EXPECT_EQ(fs::exists(run_), GetParam() != std::string{"nothing"});
    auto other = fs::exists(run_) ? run_ : storage_ / "other";
    EXPECT_EQ(contents_of(other), before_);
    // What was acknowledged went with the folder, or its successor did.
    auto left = open(held(storage_ / "moved"), folder, {});
    EXPECT_NE(is_rotten, left.resume_checkpoint().value().has_value());
  }
  EXPECT_GE(moments, 8);
}

INSTANTIATE_TEST_SUITE_P(ways, replaced_folder_test,
                         testing::Values("another_run", "a_link", "nothing"),
                         [](auto& info) { return info.param; });
