// How the checkpoints of a run are committed, kept and removed.

#include <limits>

#include "tests/support/small_disk.hpp"
#include "tests/unit/runtime/store/checkpoint_store_fixture.hpp"
#include "troupe/runtime/failpoint.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;

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
  EXPECT_EQ(open().resume_checkpoint().value(), done->unpacked());
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
  for (int i = 0; i < 2600; ++i)
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

TEST_F(checkpoint_store_test, keeps_old_checkpoints_when_the_disk_is_full) {
  small_disk disk{run / "disk", "256k"};
  if (!disk)
    GTEST_SKIP() << "mounting a small tmpfs: " << disk.reason();
  auto store = checkpoint_store::open(held(disk.path()), {"r"}, {1, "", {}}, {},
                                      saves_in(disk.path()))
                 .value();
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

// A commit that copied the metrics of all checkpoints would be slower than the
// one before.
TEST_F(checkpoint_store_test, keeps_the_metrics_of_a_report_once) {
  metrics many;
  for (int i = 0; i < 100; ++i)
    many["norm_" + std::to_string(i)] = 0.5 * i;
  std::vector<const std::string*> kept;
  auto expect_shared = [&](const checkpoint_store& store) {
    auto& known = store.registry().all();
    auto& saved = store.state().checkpoints;
    auto page = store.registry().page(0, 1 << 20).entries;
    ASSERT_EQ(known.size(), kept.size());
    ASSERT_EQ(saved.size(), kept.size());
    ASSERT_EQ(page.size(), kept.size());
    for (std::size_t i = 0; i < kept.size(); ++i) {
      EXPECT_EQ(&known[i].values.bytes(), kept[i]) << i;
      EXPECT_EQ(&saved[i].values.bytes(), kept[i]) << i;
      EXPECT_EQ(&page[i].values.bytes(), kept[i]) << i;
    }
  };
  {
    auto store = open();
    attempt = store.begin_attempt(0).value();
    for (std::uint64_t index = 0; index < 4; ++index) {
      auto batch = stage_batch(run.path(), attempt, index, name(index),
                               {{{"a", "rank 0"}}}, many)
                     .value();
      kept.push_back(&batch.values[0].bytes());
      auto committed = store.commit(attempt, batch);
      ASSERT_TRUE(committed) << committed.error().message;
      EXPECT_EQ(&committed->values.bytes(), kept.back());
      expect_shared(store);
    }
  }
  auto store = open();
  kept.clear();
  for (auto& x : store.state().checkpoints) {
    EXPECT_EQ(x.values, many);
    kept.push_back(&x.values.bytes());
  }
  EXPECT_EQ(kept.size(), 4u);
  expect_shared(store);
}
