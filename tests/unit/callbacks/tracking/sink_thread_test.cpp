// What a run starts, waits for and gives up of its trackers, and what it says
// of them at its end.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <latch>
#include <mutex>
#include <semaphore>
#include <span>
#include <stdexcept>
#include <thread>

#include <gmock/gmock.h>

#include "tests/unit/callbacks/tracking/sink_thread_fixture.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;
using testing::HasSubstr;

TEST_F(sink_thread_test, sends_during_the_run_and_the_rest_at_its_end) {
  std::binary_semaphore seen{0};
  target->answer = [&](std::span<const tracker_record> x) -> sink_result {
    if (!x.empty() && std::holds_alternative<journaled_batch>(x.back().content))
      seen.release();
    return {};
  };
  auto trackers = start({.interval = std::chrono::milliseconds{1}}).value();
  report(0);
  trackers->notify();
  seen.acquire(); // Before the run is over.
  report(1);
  ASSERT_TRUE(store->finish(run_status_kind::finished));
  trackers->finish();
  EXPECT_EQ(target->indices(), (std::vector<std::uint64_t>{0, 1}));
  EXPECT_EQ(target->ends.size(), 1u);
  EXPECT_TRUE(notes.empty());
}

TEST_F(sink_thread_test, may_be_notified_while_it_finishes) {
  auto trackers = start().value();
  std::atomic<bool> over = false;
  std::thread journal{[&] {
    while (!over) {
      trackers->notify();
      std::this_thread::yield();
    }
  }};
  EXPECT_TRUE(trackers->finish().empty());
  over = true;
  journal.join();
}

TEST_F(sink_thread_test, reports_what_is_unsent_after_the_time_limit) {
  std::counting_semaphore<> asked{0};
  target->answer = [&](auto) {
    asked.release();
    return sink_fails(sink_failure::kind::transient,
                      {ec::storage, "connection refused"});
  };
  auto trackers =
    start({.finish_timeout = std::chrono::milliseconds{20}}).value();
  report(0);
  asked.acquire();
  trackers->finish();
  ASSERT_FALSE(notes.empty());
  EXPECT_THAT(notes.back(), HasSubstr("2 records are unsent"));
  EXPECT_THAT(notes.back(), HasSubstr("connection refused"));
  // `troupe sync` does not know this tracker.
  EXPECT_THAT(notes.back(), HasSubstr("only a program with this tracker"));
}

TEST_F(sink_thread_test, counts_no_time_in_which_the_program_was_stopped) {
  std::latch continued{1};
  target->answer = [&](auto) -> sink_result {
    continued.wait();
    return {};
  };
  auto trackers = start({.max_batch = 1}).value();
  report(0);
  // The program is stopped for an hour; the tracker's limit is a minute.
  std::atomic<int> looks = 0;
  auto now = [&, begin = std::chrono::steady_clock::now()] {
    auto look = ++looks;
    if (look == 2)
      continued.count_down();
    return begin + std::chrono::hours{look < 2 ? 0 : 1};
  };
  EXPECT_THAT(trackers->finish({}, wait_time{now}), testing::IsEmpty());
  EXPECT_EQ(target->indices(), std::vector<std::uint64_t>{0});
}

/// A clock that runs fast.
std::function<std::chrono::steady_clock::time_point()> fast_clock() {
  return [now = std::chrono::steady_clock::now()]() mutable {
    return now += std::chrono::milliseconds{400};
  };
}

TEST_F(sink_thread_test, names_the_trackers_that_the_end_waits_for) {
  // The tracker returns once it is named.
  std::latch named{1};
  target->answer = [&](auto) -> sink_result {
    named.wait();
    return {};
  };
  config.trackers = {std::make_shared<tracker>(target)};
  auto trackers =
    tracker_set::start(trackers_of(config), store->description(), store->path(),
                       {[&](std::string text) {
                          notes.push_back(std::move(text));
                          named.count_down();
                        },
                        {}})
      .value();
  report(0);
  EXPECT_THAT(trackers->finish({}, wait_time{fast_clock()}),
              testing::IsEmpty());
  EXPECT_THAT(notes,
              testing::ElementsAre("the run is over and waits for trackers to "
                                   "finish: recorded (at most 58 s more)"));
}

TEST_F(sink_thread_test, gives_up_trackers_when_hurried) {
  target->answer = [](auto) {
    return sink_fails(sink_failure::kind::transient,
                      {ec::storage, "connection refused"});
  };
  // Without the hurry this test would take an hour.
  auto trackers = start({.finish_timeout = std::chrono::hours{1}}).value();
  report(0);
  auto asked = 0;
  auto unsent = trackers->finish([&] { return ++asked > 2; });
  ASSERT_EQ(unsent.size(), 1u);
  EXPECT_THAT(unsent[0], HasSubstr("2 records are unsent"));
}

TEST_F(sink_thread_test, another_thread_may_hurry_trackers) {
  target->answer = [](auto) {
    return sink_fails(sink_failure::kind::transient,
                      {ec::storage, "connection refused"});
  };
  auto trackers = start({.finish_timeout = std::chrono::hours{1}}).value();
  report(0);
  std::jthread other{[&] { trackers->hurry(); }};
  EXPECT_THAT(trackers->finish(),
              testing::ElementsAre(HasSubstr("2 records are unsent")));
}

TEST_F(sink_thread_test, has_a_moment_for_its_records_even_when_hurried) {
  config.metrics_csv = true;
  auto trackers = start().value();
  report(0);
  EXPECT_THAT(trackers->finish([] { return true; }), testing::IsEmpty());
  EXPECT_EQ(target->indices(), std::vector<std::uint64_t>{0});
}

TEST_F(sink_thread_test,
       reports_what_a_tracker_has_in_files_instead_of_uploading) {
  auto unsent = [this] { return start().value()->finish(); };
  EXPECT_THAT(unsent(), testing::IsEmpty());
  target->files = offline_files{"written to here, not uploaded: no key", false};
  EXPECT_THAT(unsent(),
              testing::ElementsAre("tracker recorded: written to here, not "
                                   "uploaded: no key"));
  target->files = offline_files{"written to here", true};
  EXPECT_THAT(unsent(), testing::IsEmpty());
  target->files = failure(ec::invalid_config, "WANDB_MODE is 'on'");
  EXPECT_THAT(unsent(),
              testing::ElementsAre("tracker recorded: what is in files only is "
                                   "unknown: WANDB_MODE is 'on'"));
  EXPECT_THAT(notes, testing::IsEmpty());
}

TEST_F(sink_thread_test, cancels_a_tracker_that_hangs) {
  std::binary_semaphore hangs{0};
  target->answer = [&](auto) -> sink_result {
    std::mutex m;
    std::unique_lock lock{m};
    std::condition_variable_any never;
    hangs.release();
    never.wait(lock, target->runs[0].cancelled, [] { return false; });
    return sink_fails(sink_failure::kind::transient, {ec::stopped, "given up"});
  };
  auto trackers =
    start({.finish_timeout = std::chrono::milliseconds{10}}).value();
  hangs.acquire();
  trackers->finish(); // It returns.
  EXPECT_THAT(notes.back(), HasSubstr("unsent"));
}

TEST_F(sink_thread_test, says_that_records_may_be_sent_again) {
  report(0);
  auto place = store->path() / "sinks" / "recorded.offset";
  target->answer = [&](std::span<const tracker_record> x) -> sink_result {
    if (!x.empty()) {
      fs::remove(place);
      fs::create_directory(place);
    }
    return {};
  };
  auto trackers =
    start({.failing_timeout = std::chrono::milliseconds{0}}).value();
  auto unsent = trackers->finish();
  EXPECT_EQ(target->indices(), std::vector<std::uint64_t>{0});
  ASSERT_EQ(unsent.size(), 1u);
  EXPECT_THAT(unsent[0], HasSubstr("may be sent again: cannot replace"));
}

TEST_F(sink_thread_test, says_what_was_refused_where_others_may_be_sent_again) {
  report(0);
  auto place = store->path() / "sinks" / "recorded.offset";
  target->answer = [&](std::span<const tracker_record> x) -> sink_result {
    if (x.empty() || !std::holds_alternative<journaled_batch>(x.back().content))
      return {};
    if (x.size() == 1) {
      fs::remove(place);
      fs::create_directory(place);
    }
    return sink_fails(sink_failure::kind::rejected, {ec::protocol, "no"});
  };
  auto trackers =
    start({.failing_timeout = std::chrono::milliseconds{0}}).value();
  auto unsent = trackers->finish();
  ASSERT_EQ(unsent.size(), 1u);
  EXPECT_THAT(unsent[0], HasSubstr("may be sent again: cannot replace"));
  EXPECT_THAT(unsent[0], HasSubstr("1 record was refused"));
}

TEST_F(sink_thread_test, leaves_a_tracker_behind_that_does_not_return) {
  std::counting_semaphore<> hangs{0};
  std::latch over{1};
  target->answer = [&](auto) -> sink_result {
    hangs.release();
    over.wait();
    return {};
  };
  auto trackers =
    start({.finish_timeout = std::chrono::milliseconds{10}}).value();
  hangs.acquire();
  auto unsent = trackers->finish(); // It returns.
  ASSERT_EQ(unsent.size(), 1u);
  EXPECT_THAT(unsent[0], HasSubstr("tracker recorded did not return"));
  EXPECT_EQ(notes.back(), unsent[0]);
  // Nothing is written when the call returns later.
  std::weak_ptr thread = target;
  config.trackers.clear();
  target.reset();
  over.count_down();
  while (!thread.expired())
    std::this_thread::yield();
  EXPECT_FALSE(fs::exists(store->path() / "sinks" / "recorded.offset"));
}

TEST_F(sink_thread_test, starts_no_tracker_that_an_earlier_run_still_has) {
  std::counting_semaphore<> hangs{0};
  std::latch over{1};
  std::atomic<int> calls = 0;
  target->answer = [&](auto) -> sink_result {
    ++calls;
    hangs.release();
    over.wait();
    return {};
  };
  auto first = start({.finish_timeout = std::chrono::milliseconds{10}}).value();
  hangs.acquire();
  first->finish();
  auto again = [this] {
    return tracker_set::start(trackers_of(config), store->description(),
                              store->path(), {[](const std::string&) {}, {}});
  };
  report(0);
  auto second = again();
  ASSERT_TRUE(second);
  auto unsent = (*second)->finish();
  ASSERT_EQ(unsent.size(), 1u);
  EXPECT_THAT(unsent[0],
              HasSubstr("tracker recorded still serves another run"));
  EXPECT_EQ(calls, 1);
  over.count_down();
  // Once the call has returned, the tracker serves a run again.
  while (!again().value()->finish().empty())
    std::this_thread::yield();
  EXPECT_EQ(target->indices(), std::vector<std::uint64_t>{0});
}

TEST_F(sink_thread_test, turns_an_exception_of_a_tracker_into_a_failure) {
  auto throws = 0;
  target->answer = [&](auto) -> sink_result {
    if (++throws == 1)
      throw std::runtime_error{"Too many levels of symbolic links"};
    return {};
  };
  auto trackers = start({.retry = {std::chrono::milliseconds{1}}}).value();
  report(0);
  ASSERT_TRUE(store->finish(run_status_kind::finished));
  EXPECT_TRUE(trackers->finish().empty());
  EXPECT_EQ(target->indices(), std::vector<std::uint64_t>{0});
  EXPECT_THAT(notes.front(), HasSubstr("Too many levels of symbolic links"));
  EXPECT_EQ(notes.size(), 2u);
}

TEST_F(sink_thread_test, gives_a_tracker_that_keeps_throwing_nothing_more) {
  target->answer = [](auto) -> sink_result { throw 7; };
  auto trackers = start({.retry = {std::chrono::milliseconds{1},
                                   std::chrono::milliseconds{1}}})
                    .value();
  report(0);
  auto unfinished = trackers->finish();
  ASSERT_EQ(unfinished.size(), 1u);
  EXPECT_THAT(unfinished[0], HasSubstr("tracker recorded"));
  EXPECT_THAT(notes, testing::Contains(HasSubstr("gets no more records")));
  EXPECT_THAT(unfinished[0], HasSubstr("2 records are unsent"));
  EXPECT_EQ(notes.back(), unfinished[0]);
}

TEST_F(sink_thread_test, waits_only_the_failing_timeout_for_one_that_fails) {
  target->answer = [](auto) {
    return sink_fails(sink_failure::kind::transient,
                      {ec::storage, "connection refused"});
  };
  // Without the shorter limit this test would take an hour.
  auto trackers = start({.finish_timeout = std::chrono::hours{1},
                         .failing_timeout = std::chrono::milliseconds{0}})
                    .value();
  report(0);
  EXPECT_EQ(trackers->finish().size(), 1u);
}

TEST_F(sink_thread_test,
       gives_up_no_tracker_for_time_in_which_the_program_was_stopped) {
  using std::chrono::milliseconds;
  std::atomic<int> calls = 0;
  target->answer = [&](std::span<const tracker_record>) -> sink_result {
    if (++calls > 100)
      return {};
    return sink_fails(sink_failure::kind::transient,
                      {ec::storage, "connection refused"});
  };
  // On this clock a day passes at once, and no time before and after.
  auto now = [&, begin = std::chrono::steady_clock::now()] {
    return begin + std::chrono::hours{calls > 50 ? 24 : 0};
  };
  auto trackers = start({.failing_timeout = milliseconds{50},
                         .retry = {milliseconds{1}, milliseconds{1}}})
                    .value();
  report(0);
  EXPECT_THAT(trackers->finish({}, wait_time{now}), testing::IsEmpty());
  EXPECT_EQ(target->indices(), std::vector<std::uint64_t>{0});
}

TEST_F(sink_thread_test, names_the_incomplete_file) {
  config.metrics_csv = true;
  fs::create_directory(store->path() / "metrics.csv"); // No table can be there.
  config.trackers.clear();
  auto trackers = tracker_set::start(trackers_of(config), store->description(),
                                     store->path(), {[](std::string) {}, {}})
                    .value();
  report(0);
  auto unfinished = trackers->finish();
  ASSERT_EQ(unfinished.size(), 1u);
  EXPECT_THAT(unfinished[0], HasSubstr("metrics.csv is incomplete"));
  EXPECT_THAT(unfinished[0], HasSubstr("troupe sync sends them"));
}

TEST_F(sink_thread_test, promises_nothing_once_the_runs_folder_is_gone) {
  auto trackers =
    start({.finish_timeout = std::chrono::milliseconds{10}}).value();
  fs::rename(store->path(), storage / "elsewhere");
  auto unfinished = trackers->finish();
  ASSERT_EQ(unfinished.size(), 1u);
  EXPECT_THAT(unfinished[0],
              HasSubstr("the run's folder " + store->path().string()
                        + " is gone, and with it what is unsent"));
  EXPECT_THAT(unfinished[0], testing::Not(HasSubstr("troupe sync")));
}

TEST_F(sink_thread_test, reports_that_it_cannot_count_what_is_unsent) {
  auto trackers =
    start({.finish_timeout = std::chrono::milliseconds{10}}).value();
  fs::remove(store->path() / "journal.jsonl");
  auto unfinished = trackers->finish();
  ASSERT_EQ(unfinished.size(), 1u);
  EXPECT_THAT(unfinished[0], HasSubstr("what is unsent cannot be counted"));
  EXPECT_THAT(unfinished[0], HasSubstr("journal.jsonl"));
}

TEST_F(sink_thread_test, refuses_a_tracker_that_lacks_what_it_needs) {
  target->on_check = []() -> expected<void> {
    return failure(ec::invalid_config, "WANDB_API_KEY is not set");
  };
  auto trackers = start();
  ASSERT_FALSE(trackers);
  EXPECT_EQ(trackers.error().code, ec::invalid_config);
  EXPECT_THAT(trackers.error().message,
              HasSubstr("tracker recorded: WANDB_API_KEY is not set"));
}

TEST_F(sink_thread_test, refuses_two_trackers_of_one_name) {
  config.trackers = {std::make_shared<tracker>(target),
                     std::make_shared<tracker>(target)};
  auto trackers = tracker_set::start(trackers_of(config), store->description(),
                                     store->path(), {[](std::string) {}, {}});
  ASSERT_FALSE(trackers);
  EXPECT_THAT(trackers.error().message,
              HasSubstr("two trackers named recorded"));
}

TEST_F(sink_thread_test, keeps_a_trackers_options_for_troupe_sync) {
  auto trackers = start().value();
  trackers->finish();
  EXPECT_EQ(bytes_of(store->path() / "sinks" / "recorded.options"), "{}");
}
