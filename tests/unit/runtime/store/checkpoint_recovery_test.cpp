// What a start does with the checkpoints that it finds.

#include <sys/stat.h>

#include "tests/support/child.hpp"
#include "tests/support/small_disk.hpp"
#include "tests/unit/runtime/store/checkpoint_store_fixture.hpp"
#include "troupe/runtime/failpoint.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;

TEST_F(checkpoint_store_test, resumes_from_shared_files_that_it_cannot_copy) {
  auto store = open();
  attempt = store.begin_attempt(0).value();
  auto done = commit(store, 0).value();
  fs::create_hard_link(folder(0) / "a", run / "backup");
  auto next = open();
  write_bytes(run.path() / "checkpoints" / ".staging-separate", "");
  EXPECT_EQ(next.resume_checkpoint().value(), done.unpacked());
  auto events = next.take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, "checkpoint_shared");
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
TEST_F(checkpoint_store_test,
       notes_unlisted_files_in_a_checkpoint_and_keeps_it) {
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
    if (crash) {
      ASSERT_TRUE(open(keep_one).resume_checkpoint());
    } else {
      store.remove_held(); // The next driver's callbacks read them.
      EXPECT_GE(entries(), 3u);
      ASSERT_TRUE(store.finish(run_status_kind::finished, {}, next + 3));
      store.remove_held();
    }
    EXPECT_EQ(entries(), 1u) << crash;
  }
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
    auto store = checkpoint_store::open(held(run.path()), {"r"}, {}, state,
                                        saves_in(run.path()));
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

// Else a power cut could bring it back, and its name would be taken.
TEST_F(checkpoint_store_test, forgets_only_what_is_gone_for_good) {
  auto status = run_in_child([&] {
    auto store = open(keep_one);
    attempt = store.begin_attempt(0).value();
    (void) commit(store, 0);
    (void) arm_failpoint("commit.state_saved");
    (void) commit(store, 1);
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  auto store = open(keep_one);
  ASSERT_TRUE(store.resume_checkpoint().value());
  EXPECT_FALSE(fs::exists(folder(0)));
  ASSERT_TRUE(arm_failpoint("storage.sync_file=eio"));
  auto begun = store.begin_attempt(2);
  ASSERT_TRUE(arm_failpoint(""));
  ASSERT_FALSE(begun);
  EXPECT_TRUE(mentions(begun.error(), (run / "checkpoints").string() + ':'))
    << begun.error().message;
  EXPECT_EQ(load_run(run.path()).value()->doomed.size(), 1u);
  EXPECT_TRUE(store.begin_attempt(2));
  EXPECT_TRUE(load_run(run.path()).value()->doomed.empty());
}

TEST_F(checkpoint_store_test, N1_adopts_only_what_is_durable) {
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
  ASSERT_TRUE(arm_failpoint("storage.sync_file=eio"));
  auto store = checkpoint_store::open(held(run.path()), {"r"}, keep_one, before,
                                      saves_in(run.path()));
  ASSERT_TRUE(arm_failpoint(""));
  ASSERT_FALSE(store);
  EXPECT_TRUE(mentions(store.error(), (run / "checkpoints").string() + ':'))
    << store.error().message;
  EXPECT_EQ(load_run(run.path()).value()->checkpoints.size(), 1u);
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
  auto store = checkpoint_store::open(held(run.path()), {"r"}, {}, state,
                                      saves_in(run.path()), log)
                 .value();
  state = load_run(run.path()).value().value();
  EXPECT_EQ(store.resume_checkpoint().error().message, "the disk is full");
  EXPECT_TRUE(fs::exists(folder(1)));
  stores = true;
  EXPECT_EQ(store.resume_checkpoint().value()->data.name(), name(0));
  EXPECT_EQ(stored, (std::vector<std::string>{"checkpoint_rotten of 1"}));
  EXPECT_FALSE(fs::exists(folder(1)));
}

// A driver dies while it removes what retention evicted, the newest rots, and
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
// was evicted.
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
