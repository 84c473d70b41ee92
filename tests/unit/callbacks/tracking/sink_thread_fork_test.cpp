// Processes that calls of a tracker fork.

#include <cerrno>
#include <chrono>
#include <span>
#include <stdexcept>
#include <string>
#include <variant>

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/child.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/unit/callbacks/tracking/sink_thread_fixture.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;

TEST_F(sink_thread_test, ends_a_process_that_a_tracker_forked) {
  TROUPE_SKIP_FORKS_UNDER_TSAN();
  for (std::string where : {"start", "log", "finish"})
    for (auto throws : {false, true}) {
      SCOPED_TRACE(where + (throws ? " throws" : ""));
      reopen(where + (throws ? "-throws" : ""));
      auto path = store->path() / "sinks" / "recorded.offset";
      auto status = -1;
      auto is_child = false;
      std::string before, after;
      target->answer = [&](std::span<const tracker_record> x) -> sink_result {
        if (is_child)
          ::_exit(7); // A second call.
        auto is_here =
          x.empty()
            ? where == (target->ends.empty() ? "start" : "finish")
            : where == "log"
                && std::holds_alternative<journaled_batch>(x.back().content);
        if (status >= 0 || !is_here)
          return {};
        before = bytes_of(path);
        auto child = ::fork();
        is_child = child == 0;
        while (child > 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR)
          continue;
        after = bytes_of(path);
        // In the one of two that is not to return.
        if (throws && !is_child)
          throw std::runtime_error{"the connection broke"};
        return {};
      };
      auto trackers = start({.retry = {std::chrono::milliseconds{1}}}).value();
      report(0);
      ASSERT_TRUE(store->finish(run_status_kind::finished));
      EXPECT_TRUE(trackers->finish().empty());
      EXPECT_EQ(status, 0);
      EXPECT_EQ(after, before);
      EXPECT_EQ(where == "start", before.empty());
      EXPECT_THAT(target->indices(), testing::Contains(0u));
      EXPECT_FALSE(target->ends.empty());
    }
}

TEST_F(sink_thread_test, ends_a_process_that_the_check_of_a_tracker_forked) {
  for (auto refuses : {false, true}) {
    auto status = -1;
    target->on_check = [&]() -> expected<void> {
      auto child = ::fork();
      while (child > 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
      if (child == 0 && refuses)
        return failure(ec::storage, "no");
      return {};
    };
    auto check = run_in_child([&] {
      auto parent = ::getpid();
      config.trackers = {std::make_shared<tracker>(target)};
      auto ok = tracker_set::check(trackers_of(config), store->description(),
                                   store->path());
      if (::getpid() != parent)
        ::_exit(7); // A second run.
      ::_exit(ok && WEXITSTATUS(status) == (refuses ? 1 : 0) ? 0 : 8);
    });
    EXPECT_EQ(WEXITSTATUS(check), 0);
  }
}

TEST_F(sink_thread_test, ends_a_forked_process_that_a_tracker_leaves_throwing) {
  TROUPE_SKIP_FORKS_UNDER_TSAN();
  auto status = -1;
  auto is_child = false;
  target->answer = [&](auto) -> sink_result {
    if (is_child)
      ::_exit(7); // A second call.
    if (status >= 0)
      return {};
    auto child = ::fork();
    if (child == 0) {
      is_child = true;
      throw std::runtime_error{"in the child"};
    }
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR)
      continue;
    return {};
  };
  auto trackers = start({.retry = {std::chrono::milliseconds{1}}}).value();
  report(0);
  ASSERT_TRUE(store->finish(run_status_kind::finished));
  EXPECT_TRUE(trackers->finish().empty());
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_EQ(target->indices(), std::vector<std::uint64_t>{0});
}
