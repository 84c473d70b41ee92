#include "troupe/runtime/run/loss_excuses.hpp"

#include <csignal>

#include <gtest/gtest.h>

#include "tests/support/start_time.hpp"

namespace troupe::internal {
namespace {

using namespace std::chrono_literals;
using kind = rank_failure::kind_type;
using test::t0;

/// An elastic run that has lost host 1, of which it last heard at `t0`.
class loss_excuses_test : public testing::Test {
protected:
  loss_excuses_test() { excuses.lost({1, "silent", false, t0}, "lost", true); }

  /// A loop of *host* that threw *after* the last sign of host 1.
  static loss_excuses::failed_rank threw(std::size_t host,
                                         std::chrono::milliseconds after) {
    return {host, kind::exception, 0, t0 + after, {}, {}};
  }

  /// The same of the end of a process.
  static loss_excuses::failed_rank ended(std::size_t host, kind how, int code,
                                         std::chrono::milliseconds after) {
    return {host, how, code, {}, t0 + after, {}};
  }

  /// A rank of *host* was over a limit.
  static loss_excuses::failed_rank timed_out(std::size_t host,
                                             std::chrono::milliseconds after) {
    return {host, kind::timeout, 0, {}, {}, t0 + after};
  }

  /// Ranks were to end since one of *host* broke a rule.
  static loss_excuses::failed_rank broke_rule(std::size_t host,
                                              std::chrono::milliseconds after) {
    return {host, kind::misuse, 0, {}, {}, t0 + after};
  }

  loss_excuses excuses{true};
};

TEST_F(loss_excuses_test, LE_1_a_run_of_fixed_size_counts_what_it_loses) {
  loss_excuses fixed;
  fixed.lost({1, "silent", false, t0}, "lost", true);
  EXPECT_EQ(fixed.excuse({{1, kind::lost, 0, {}, {}, {}}, threw(0, 1ms)}), "");
}

TEST_F(loss_excuses_test, LE_1_a_host_that_said_so_excuses_in_any_run) {
  loss_excuses fixed;
  fixed.leaves(1, "about to leave");
  EXPECT_EQ(fixed.excuse({{1, kind::lost, 0, {}, {}, {}}}), "about to leave");
  fixed.lost({1, "gone", true, t0}, "lost", true);
  EXPECT_EQ(fixed.excuse({threw(0, 1ms)}), "lost");
}

TEST_F(loss_excuses_test, LE_2_ranks_that_end_with_their_host_are_excused) {
  loss_excuses fixed;
  fixed.leaves(1, "about to leave");
  for (auto signal : {SIGKILL, SIGTERM})
    EXPECT_EQ(fixed.excuse({ended(1, kind::signal, signal, 1ms)}),
              "about to leave");
  EXPECT_EQ(fixed.excuse({{1, kind::start_failed, 0, {}, {}, {}}}),
            "about to leave")
    << "its spawner may end first";
  EXPECT_EQ(fixed.excuse({ended(1, kind::signal, SIGSEGV, 1ms)}), "");
  EXPECT_EQ(fixed.excuse({ended(0, kind::signal, SIGKILL, 1ms)}), "");
  EXPECT_EQ(fixed.excuse({threw(1, 1ms)}), "") << "that is its own";
}

TEST_F(loss_excuses_test, LE_2_a_rank_cannot_start_on_a_host_that_is_lost) {
  EXPECT_EQ(excuses.excuse({{1, kind::start_failed, 0, {}, {}, {}}}), "lost");
  EXPECT_EQ(excuses.excuse({{1, kind::start_failed, 0, {}, {}, {}},
                            {0, kind::start_failed, 0, {}, {}, {}}}),
            "")
    << "that one is of a host that is there";
}

// It is lost later than a limit below `scaling_config::lost_after`.
TEST_F(loss_excuses_test, LE_2_no_limit_counts_on_a_host_that_is_lost) {
  loss_excuses::failed_rank late{1, kind::timeout, 0, {}, {}, {}};
  EXPECT_EQ(excuses.excuse({late}), "lost");
  loss_excuses fixed;
  fixed.leaves(1, "about to leave");
  EXPECT_EQ(fixed.excuse({late}), "");
  fixed.lost({1, "gone", true, t0}, "lost", true);
  EXPECT_EQ(fixed.excuse({late}), "lost");
}

TEST_F(loss_excuses_test, LE_2_the_last_word_about_a_host_counts) {
  loss_excuses fixed;
  fixed.leaves(1, "about to leave");
  fixed.leaves(1, "another notice");
  EXPECT_EQ(fixed.excuse({{1, kind::lost, 0, {}, {}, {}}}), "about to leave");
  fixed.lost({1, "gone", true, t0}, "lost", false);
  EXPECT_EQ(fixed.excuse({{1, kind::lost, 0, {}, {}, {}}}), "lost");
}

TEST_F(loss_excuses_test, LE_3_failures_since_the_last_sign_are_excused) {
  EXPECT_EQ(excuses.excuse({threw(0, 0ms)}), "lost");
  EXPECT_EQ(excuses.excuse({threw(0, -1ms)}), "");
  for (auto how : {kind::exit_code, kind::signal, kind::thread_exception}) {
    EXPECT_EQ(excuses.excuse({ended(0, how, SIGABRT, 5ms)}), "lost");
    EXPECT_EQ(excuses.excuse({ended(0, how, SIGABRT, -5ms)}), "");
  }
}

// It may wait for data of the host that is silent.
TEST_F(loss_excuses_test, LE_3_a_limit_since_the_last_sign_is_excused) {
  EXPECT_EQ(excuses.excuse({timed_out(0, 0ms), timed_out(2, 5ms)}), "lost");
  EXPECT_EQ(excuses.excuse({timed_out(0, -1ms)}), "");
  loss_excuses fixed;
  fixed.lost({1, "silent", false, t0}, "lost", true);
  EXPECT_EQ(fixed.excuse({timed_out(0, 1ms)}), "");
}

// A loop may catch the exception of its collective, and return.
TEST_F(loss_excuses_test, LE_3_a_misuse_since_the_last_sign_is_excused) {
  EXPECT_EQ(excuses.excuse({broke_rule(0, 0ms)}), "lost");
  EXPECT_EQ(excuses.excuse({broke_rule(0, -1ms)}), "");
  loss_excuses fixed;
  fixed.lost({1, "silent", false, t0}, "lost", true);
  EXPECT_EQ(fixed.excuse({broke_rule(0, 1ms)}), "");
}

TEST_F(loss_excuses_test, LE_3_takes_no_other_failure_for_a_consequence) {
  auto since = t0 + 1ms;
  for (auto how : {kind::lost, kind::start_failed})
    EXPECT_EQ(excuses.excuse({{0, how, 0, since, since, since}}), "");
}

TEST_F(loss_excuses_test, LE_3_a_host_without_ranks_has_no_consequences) {
  loss_excuses other{true};
  other.lost({1, "silent", false, t0}, "lost", false);
  EXPECT_EQ(other.excuse({threw(0, 1ms)}), "");
}

TEST_F(loss_excuses_test, LE_4_one_failure_of_its_own_counts) {
  EXPECT_EQ(excuses.excuse({{1, kind::lost, 0, {}, {}, {}}, threw(0, 1ms)}),
            "lost");
  EXPECT_EQ(excuses.excuse({threw(0, 1ms), threw(2, -1ms)}), "");
}

} // namespace
} // namespace troupe::internal
