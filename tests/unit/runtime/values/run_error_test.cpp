#include "troupe/runtime/values/run_error.hpp"

#include <gtest/gtest.h>

#include <signal.h>

#include "troupe/runtime/text.hpp"

using namespace troupe;
using namespace troupe::internal;
using kind = rank_failure::kind_type;

TEST(run_error_test, distinguishes_every_kind_of_failure) {
  EXPECT_EQ(to_string({kind::exception, 0, "bad shape"}),
            "exception: bad shape");
  EXPECT_EQ(to_string({kind::exit_code, 3}), "exit(3)");
  EXPECT_EQ(to_string({kind::signal, SIGSEGV}),
            "killed by signal 11 (SIGSEGV)");
  EXPECT_EQ(to_string({kind::signal, SIGKILL, "out of memory"}),
            "killed by signal 9 (SIGKILL): out of memory");
  EXPECT_EQ(to_string({kind::thread_exception, 0, "x"}),
            "exception in a thread: x");
  EXPECT_EQ(to_string({kind::lost}), "lost");
}

TEST(run_error_test, groups_ranks_that_failed_alike) {
  auto x = make_run_error({{0, {kind::exception, 0, "peer", 11, "a"}},
                           {1, {kind::signal, SIGKILL, "", 12, "a"}},
                           {3, {kind::exception, 0, "peer", 14, "b"}}},
                          "/runs/x");
  EXPECT_EQ(x.code, ec::rank_failed);
  EXPECT_EQ(x.message, "Ranks 0, 3: exception: peer\n"
                       "Rank 1: killed by signal 9 (SIGKILL) (see "
                       "/runs/x/logs/rank_1.log)");
  EXPECT_EQ(x.ranks.at(3).host, "b");
}

TEST(run_error_test, shortens_the_failures_of_many_ranks) {
  std::map<int, rank_failure> alike, different;
  for (int rank = 0; rank < 34; ++rank) {
    alike[rank] = {kind::signal, SIGKILL};
    different[rank] = {kind::exit_code, rank};
  }
  EXPECT_EQ(failures_text(alike),
            "ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 and 18 "
            "more: killed by signal 9 (SIGKILL)");
  EXPECT_TRUE(failures_text(different).ends_with(
    "; rank 15: exit(15); 18 more ranks failed"))
    << failures_text(different);
  auto x = make_run_error(different, {});
  EXPECT_TRUE(x.message.ends_with("\nRank 15: exit(15)\n18 more ranks failed"))
    << x.message;
  EXPECT_EQ(x.ranks.size(), 34u);
}

TEST(run_error_test, says_once_that_an_exception_ended_a_thread) {
  EXPECT_EQ(to_string({kind::thread_exception, 0,
                       "ended by an exception in a thread: x"}),
            "ended by an exception in a thread: x");
}

TEST(run_error_test, cuts_long_causes_and_points_to_the_log) {
  std::string text;
  for (int i = 0; i < 1000; ++i)
    text += "ü"; // two bytes; none may be cut in half
  auto x = make_run_error({{5, {kind::exception, 0, text}}}, "/runs/x");
  EXPECT_LT(x.message.size(), max_cause_size + 100);
  EXPECT_NE(x.message.find("ü… (cut; see /runs/x/logs/rank_5.log)"),
            std::string::npos);
  EXPECT_EQ(x.ranks.at(5).what, text);
}

TEST(run_error_test, points_to_no_log_of_ranks_that_have_none) {
  std::string text(2 * max_cause_size, 'x');
  auto x = make_run_error({{5, {kind::exception, 0, text}}}, {});
  EXPECT_TRUE(x.message.ends_with("x… (cut; `ranks` of the error has more)"))
    << x.message;
}

TEST(run_error_test, keeps_64_KiB_of_a_reason_and_its_full_length) {
  std::string text(max_reason_size, 'x');
  EXPECT_EQ(make_run_error({ec::storage, text}).message, text);
  text.back() = '\xc3'; // the first half of an "ü"
  auto x = make_run_error({ec::storage, text + "\xbc" + "yz"});
  EXPECT_EQ(x.message, std::string(max_reason_size - 1, 'x')
                         + "… (cut; it has 65539 bytes)");
}
