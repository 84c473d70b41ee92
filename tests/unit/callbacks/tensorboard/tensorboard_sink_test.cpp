#include "troupe/callbacks/tensorboard/tensorboard_sink.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <stop_token>

#include <gtest/gtest.h>

#include "tests/support/broken_off.hpp"
#include "tests/support/child.hpp"
#include "tests/support/event_file.hpp"
#include "tests/support/small_disk.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/tracker_records.hpp"
#include "troupe/callbacks/tensorboard/event_text.hpp"
#include "troupe/callbacks/tracking/option_fields.hpp"

namespace troupe::internal {
namespace {

using test::tracker_records;
using records_span = std::span<const tracker_record>;

class tensorboard_sink_test : public testing::Test {
protected:
  void start(tensorboard_sink& sink, const std::string& state = {}) {
    auto done = sink.start(run_, state);
    ASSERT_TRUE(done) << done.error().reason.message;
  }

  void log(tensorboard_sink& sink, records_span records) {
    auto done = sink.log(records);
    ASSERT_TRUE(done) << done.error().reason.message;
  }

  std::vector<fs::path> files() const { return test::event_files_in(events_); }

  // How many records of the folder hold *bytes*.
  long count(std::string_view bytes) const {
    auto all = test::all_event_records(events_);
    return std::count_if(all.begin(), all.end(), [&](const auto& x) {
      return x.find(bytes) != x.npos;
    });
  }

  test::temporary_folder folder_;
  tracked_run run_ = test::tracked_run_in(folder_.path());
  fs::path events_ = folder_ / "tensorboard";
};

TEST_F(tensorboard_sink_test, names_files_so_that_readers_take_them_in_order) {
  tracker_records records;
  records.attempt(0, 0).report(0, {{{"loss", 1}}});
  for (std::uint64_t i = 1; i < 12; ++i)
    records.attempt(i, i).report(i, {{{"loss", 1}}});
  tensorboard_sink sink;
  start(sink);
  log(sink, records.all());
  auto names = files();
  ASSERT_EQ(names.size(), 13u);
  auto pid = std::to_string(::getpid());
  EXPECT_EQ(names[0].filename().string(),
            "events.out.tfevents.1767225600.node-1." + pid + ".01234567-0000");
  EXPECT_EQ(names[1].filename().string(),
            "events.out.tfevents.1767225600.node-1." + pid + ".01234567-0001");
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_TRUE(names[i].string().ends_with(std::to_string(i))) << names[i];
    EXPECT_NE(test::event_records(names[i]).at(0).find("brain.Event:2"),
              std::string::npos);
  }
}

TEST_F(tensorboard_sink_test, changes_nothing_once_its_run_is_over) {
  tracker_records records;
  records.attempt(0, 0).report(0, {{{"loss", 1}}}).attempt(1, 1);
  records.add(logged_params{{{"late", 1}}});
  const records_span all{records.all()};
  for (std::size_t next : {1, 2, 3}) { // A value, a file, the file of params.
    fs::remove_all(events_);
    std::stop_source over;
    run_.cancelled = over.get_token();
    tensorboard_sink sink;
    start(sink);
    log(sink, all.first(1));
    auto before = test::all_event_records(events_);
    auto names = files();
    over.request_stop();
    EXPECT_FALSE(sink.log(all.subspan(next, 1)));
    EXPECT_FALSE(sink.log(all.subspan(next, 1))); // It does not open them.
    EXPECT_EQ(test::all_event_records(events_), before);
    EXPECT_EQ(files(), names);
  }
}

TEST_F(tensorboard_sink_test, shows_readers_where_each_attempt_resumes) {
  tracker_records records;
  records.attempt(0, 0);
  for (std::uint64_t i = 0; i < 6; ++i)
    records.report(i, {{{"loss", i}}}, i == 3 ? "checkpoint" : "");
  records.attempt(1, 4);
  tensorboard_sink sink;
  start(sink);
  log(sink, records.all());
  std::string expected;
  auto time = records.all().back().time;
  tensorboard::append_version(expected, time);
  tensorboard::append_restart(expected, {time, 4});
  EXPECT_EQ(test::bytes_of(files().back()), expected);
}

TEST_F(tensorboard_sink_test, writes_a_text_once_per_change) {
  tracker_records records;
  for (std::uint64_t i = 0; i < 10; ++i)
    records.report(i, {{{"phase", i < 5 ? "warm" : "cold"}}});
  tensorboard_sink first;
  start(first);
  const records_span all{records.all()};
  log(first, all.first(3));
  tensorboard_sink second;
  start(second, first.state());
  log(second, all.subspan(3));
  EXPECT_EQ(count("phase"), 2);
  EXPECT_EQ(count("warm"), 1);
  EXPECT_EQ(count("cold"), 1);
}

TEST_F(tensorboard_sink_test, writes_flags_and_integers_as_numbers) {
  tracker_records records;
  records.report(0, {{{"flag", true}, {"big", (std::int64_t{1} << 53) + 1}}});
  tensorboard_sink sink;
  start(sink);
  log(sink, records.all());
  EXPECT_EQ(count(std::string("flag\x15\0\0\x80?", 9)), 1);
  EXPECT_EQ(count(std::string("big\x15\0\0\0Z", 8)), 1); // 2^53
}

TEST_F(tensorboard_sink_test, skips_non_finite_values_on_request) {
  tracker_records records;
  records.report(0, {{{"nan", NAN}, {"infinite", INFINITY}, {"one", 1}}});
  tensorboard_sink sink{{.non_finite = non_finite::skip}};
  start(sink);
  log(sink, records.all());
  EXPECT_EQ(count("nan"), 0);
  EXPECT_EQ(count("infinite"), 0);
  EXPECT_EQ(count("one"), 1);
}

TEST_F(tensorboard_sink_test, writes_the_values_of_the_chosen_ranks) {
  tracker_records records;
  records.report(0, {{{"loss", 1}}, {{"loss", 2}}});
  tensorboard_sink sink{{.ranks = rank_values::each}};
  start(sink);
  log(sink, records.all());
  EXPECT_EQ(count("rank_1/loss"), 1);
}

TEST_F(tensorboard_sink_test, writes_the_end_once_even_if_the_run_is_resumed) {
  tracker_records records;
  records.attempt(0, 0).report(0, {{{"loss", 1}}});
  tensorboard_sink first;
  start(first);
  log(first, records.all());
  ASSERT_TRUE(first.finish(run_status_kind::errored, records.time()));
  EXPECT_EQ(count("_hparams_/session_start_info"), 1);
  EXPECT_EQ(count("_hparams_/session_end_info"), 1);
  tracker_records more;
  more.attempt(1, 1).report(1, {{{"loss", 1}}});
  tensorboard_sink second;
  start(second, first.state());
  EXPECT_EQ(count("_hparams_/session_end_info"), 0);
  log(second, more.all());
  ASSERT_TRUE(second.finish(run_status_kind::finished, more.time()));
  ASSERT_TRUE(second.finish(run_status_kind::finished, more.time()));
  EXPECT_EQ(count("_hparams_/session_start_info"), 1);
  EXPECT_EQ(count("_hparams_/session_end_info"), 1);
}

TEST_F(tensorboard_sink_test, shows_params_that_the_loop_logged) {
  tracker_records records;
  records.attempt(0, 0).add(logged_params{{{"seed", 7}, {"lr", 0.5}}});
  tensorboard_sink sink;
  start(sink);
  EXPECT_EQ(count("seed"), 0);
  log(sink, records.all());
  EXPECT_EQ(count("seed"), 1);
  EXPECT_EQ(count("_hparams_/experiment"), 0);
  tensorboard_sink again{{.hparams_metrics = {"val/acc"}}};
  start(again, sink.state());
  EXPECT_EQ(count("seed"), 2); // experiment and session start
  EXPECT_EQ(count("val/acc"), 1);
}

TEST_F(tensorboard_sink_test,
       keeps_an_image_and_rejects_one_whose_file_is_gone) {
  test::write_bytes(folder_ / "a.png", "\x89PNG bytes");
  tracker_records records;
  records.report(0, {{{"before", 1}}});
  records.add(logged_image{3, "kept", folder_ / "a.png", 4, 2, 3});
  records.add(logged_image{3, "gone", folder_ / "b.png", 4, 2, 3});
  records.report(1, {{{"after", 1}}});
  const records_span all{records.all()};
  tensorboard_sink sink;
  start(sink);
  auto done = sink.log(all);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().what, sink_failure::kind::rejected);
  EXPECT_EQ(done.error().accepted, 2u);
  EXPECT_EQ(done.error().reason.message, "cannot open "
                                           + (folder_ / "b.png").string()
                                           + ": No such file or directory");
  EXPECT_EQ(count("\x89PNG bytes"), 1);
  log(sink, all.subspan(3));
  EXPECT_EQ(count("after"), 1);
  EXPECT_EQ(count("before"), 1);
}

TEST_F(tensorboard_sink_test,
       warns_once_of_steps_that_the_page_hparams_refuses) {
  tracker_records records;
  records.add(logged_metrics{(std::int64_t{1} << 31) - 1, {{"a", 1}}});
  tensorboard_sink sink;
  start(sink);
  log(sink, records.all());
  EXPECT_TRUE(sink.take_notes().empty());
  tracker_records more;
  more.add(logged_metrics{std::int64_t{1} << 31, {{"a", 1}}});
  more.add(logged_metrics{std::int64_t{1} << 40, {{"a", 1}}});
  log(sink, more.all());
  auto notes = sink.take_notes();
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(notes.front().starts_with("step 2147483648 is above 2^31-1"))
    << notes.front();
}

TEST_F(tensorboard_sink_test, cuts_off_what_was_written_after_the_state) {
  auto run = test::hard_run();
  const records_span all{run.all()};
  tensorboard_sink first;
  start(first);
  log(first, all.first(50));
  auto state = first.state();
  log(first, all.subspan(50)); // Two more files.
  auto whole = test::all_event_records(events_);
  EXPECT_EQ(files().size(), 4u);
  test::write_bytes(files()[1], test::bytes_of(files()[1]) + "torn");
  tensorboard_sink second;
  start(second, state);
  EXPECT_EQ(files().size(), 2u);
  log(second, all.subspan(50));
  EXPECT_EQ(test::all_event_records(events_), whole);
}

TEST_F(tensorboard_sink_test,
       continues_in_a_new_file_if_its_own_was_shortened) {
  tracker_records records;
  records.attempt(0, 0).report(0, {{{"loss", 1}}}).report(1, {{{"late", 1}}});
  const records_span all{records.all()};
  tensorboard_sink first;
  start(first);
  log(first, all.first(2));
  auto whole = test::bytes_of(files()[1]);
  test::write_bytes(files()[1], whole.substr(0, whole.size() - 3));
  tensorboard_sink second;
  start(second, first.state());
  log(second, all.subspan(2));
  ASSERT_EQ(files().size(), 3u);
  EXPECT_NE(test::event_records(files()[2]).at(1).find("late"),
            std::string::npos);
}

TEST_F(tensorboard_sink_test, leaves_files_of_others_alone) {
  fs::create_directory(events_);
  auto profile = events_ / "events.out.tfevents.1.h.profile-empty";
  test::write_bytes(profile, "");
  auto shared = folder_.path().parent_path()
                / (folder_.path().filename().string() + "-shared");
  fs::create_directory(shared);
  auto other = shared / "events.out.tfevents.1.h.1.76543210-0009";
  test::write_bytes(other, "");
  tensorboard_sink sink;
  start(sink);
  EXPECT_TRUE(fs::exists(profile));
  tensorboard_sink second{{.log_dir = shared}};
  start(second);
  EXPECT_TRUE(fs::exists(other));
  fs::remove_all(shared);
}

TEST_F(tensorboard_sink_test, takes_no_overlong_number_for_that_of_its_file) {
  fs::create_directory(events_);
  auto other =
    events_ / "events.out.tfevents.1.h.1.01234567-99999999999999999999";
  test::write_bytes(other, "kept");
  tracker_records records;
  records.attempt(0, 0).add(logged_params{{{"seed", 7}}});
  tensorboard_sink sink;
  start(sink);
  log(sink, records.all());
  EXPECT_EQ(test::bytes_of(other), "kept");
}

// A copy of a run from which another branches off: `sinks/` and `run.json` are
// removed.
TEST_F(tensorboard_sink_test, shows_no_point_of_the_copied_run_twice) {
  tracker_records records;
  records.attempt(0, 0).report(0, {{{"loss", 1}}});
  tensorboard_sink first;
  start(first);
  log(first, records.all());
  auto before = files();
  ASSERT_EQ(before.size(), 2u);
  auto bytes = test::bytes_of(before[1]);
  run_.id = std::string(32, '7');
  tensorboard_sink second;
  start(second);
  log(second, records.all());
  EXPECT_EQ(count("loss"), 1);
  auto kept = before[1].filename().string().substr(20);
  EXPECT_EQ(test::bytes_of(events_ / ("former." + kept)), bytes);
}

// The position was damaged.
TEST_F(tensorboard_sink_test, keeps_its_files_if_it_begins_again) {
  tracker_records records;
  records.attempt(0, 0).report(0, {{{"loss", 1}}});
  std::string kept;
  std::string bytes;
  for (auto i = 0; i < 3; ++i) {
    tensorboard_sink sink;
    start(sink);
    log(sink, records.all());
    EXPECT_EQ(files().size(), 2u);
    EXPECT_EQ(count("loss"), 1);
    if (i == 0) {
      kept = files()[1].filename().string().substr(20);
      bytes = test::bytes_of(files()[1]);
    }
  }
  EXPECT_EQ(test::bytes_of(events_ / ("former." + kept)), bytes);
  EXPECT_TRUE(fs::exists(events_ / ("former." + kept + ".2")));
}

// As on a disk that is full before a position is saved.
TEST_F(tensorboard_sink_test, keeps_no_file_of_a_start_that_wrote_no_event) {
  for (auto i = 0; i < 3; ++i) {
    tensorboard_sink sink;
    start(sink);
  }
  for (const auto& x : fs::directory_iterator{events_})
    EXPECT_FALSE(x.path().filename().string().starts_with("former."))
      << x.path();
}

TEST_F(tensorboard_sink_test,
       loses_and_repeats_no_record_wherever_it_is_killed) {
  auto run = test::hard_run();
  auto make = [] { return sink_from_json<tensorboard_sink>("{}"); };
  auto all = [&] { return test::all_event_records(events_); };
  {
    test::broken_off writer{make, run_, run.all()};
    ASSERT_TRUE(writer.run_until("none", 1));
  }
  auto whole = all();
  fs::remove_all(events_);
  std::uint64_t most = 0;
  auto size = [&] {
    std::uint64_t result = 0;
    boost::system::error_code missing;
    for (fs::directory_iterator i{events_, missing}, end; i != end;
         i.increment(missing))
      result += fs::file_size(i->path(), missing);
    most = std::max(most, result);
    return result;
  };
  std::mt19937 random{50};
  for (const auto* point :
       {"record_file.append", "record_file.commit", "tensorboard.begun",
        "replace.written", "replace.renamed", "storage.sync_file"}) {
    test::broken_off writer{make, run_, run.all()};
    for (unsigned n : {1, 2})
      EXPECT_FALSE(writer.run_until(point, n)) << point;
    for (int kill = 0; kill < 8; ++kill)
      writer.run_until_size(size, random() % 150'000);
    EXPECT_TRUE(writer.run_until("none", 1));
    EXPECT_EQ(all(), whole) << point;
    fs::remove_all(events_);
  }
}

TEST_F(tensorboard_sink_test, reports_once_that_the_disk_is_full_or_read_only) {
  test::small_disk disk{folder_ / "disk", "64k"};
  if (!disk)
    GTEST_SKIP() << "no tmpfs can be mounted: " << disk.reason();
  run_.path = disk.path();
  events_ = disk.path() / "tensorboard";
  tracker_records records;
  records.attempt(0, 0);
  records.report(0, {{{"text", std::string(100'000, 'x')}}});
  auto sink = std::make_unique<tensorboard_sink>();
  start(*sink);
  auto full = sink->log(records.all());
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().what, sink_failure::kind::transient);
  EXPECT_EQ(full.error().reason.code, ec::storage);
  auto state = sink->state();
  tracker_records small;
  small.attempt(0, 0).report(0, {{{"loss", 1}}});
  log(*sink, small.all());
  EXPECT_EQ(count("loss"), 1);
  sink = std::make_unique<tensorboard_sink>();
  if (!disk.make_read_only())
    GTEST_SKIP() << "the disk cannot be made read-only";
  auto read_only = sink->start(run_, state);
  ASSERT_FALSE(read_only);
  EXPECT_EQ(read_only.error().what, sink_failure::kind::transient);
  EXPECT_EQ(read_only.error().reason.code, ec::storage);
}

TEST_F(tensorboard_sink_test, does_not_create_the_folder_of_a_removed_run) {
  run_.path = folder_ / "gone";
  tensorboard_sink sink;
  EXPECT_FALSE(sink.start(run_, {}));
  EXPECT_FALSE(fs::exists(run_.path));
}

TEST_F(tensorboard_sink_test, writes_to_a_folder_in_the_users_home) {
  // In a process of its own: it changes the environment.
  auto status = test::run_in_child([&] {
    ::setenv("HOME", (folder_ / "home").c_str(), 1);
    fs::create_directory(folder_ / "home");
    tensorboard_sink sink{{.log_dir = "~/tb"}};
    auto ok = sink.check(run_) && sink.start(run_, {})
              && !test::event_files_in(folder_ / "home/tb").empty();
    ::_exit(ok ? 0 : 2);
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_FALSE(fs::exists(run_.path / "~"));
}

TEST_F(tensorboard_sink_test, can_be_rebuilt_from_its_options) {
  const tensorboard_sink sink{{.log_dir = "/tmp/x",
                               .ranks = rank_values::mean,
                               .non_finite = non_finite::skip,
                               .hparams_metrics = {"loss"}}};
  EXPECT_EQ(sink_from_json<tensorboard_sink>(sink.options())->options(),
            sink.options());
  EXPECT_EQ(sink_from_json<tensorboard_sink>("{}")->options(),
            tensorboard_sink{}.options());
  EXPECT_FALSE(tensorboard_sink{{.log_dir = ""}}.check(run_));
}

} // namespace
} // namespace troupe::internal
