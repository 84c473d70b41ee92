#include "troupe/runtime/process/process_exit.hpp"

#include <gtest/gtest.h>

using troupe::internal::process_exit;

TEST(process_exit_test, reads_the_status_of_waitpid) {
  EXPECT_EQ(troupe::internal::process_exit_of(3 << 8, {}),
            (process_exit{process_exit::kind::exited, 3, {}}));
  EXPECT_EQ(troupe::internal::process_exit_of(9, {}),
            (process_exit{process_exit::kind::signaled, 9, {}}));
}

TEST(process_exit_test, says_how_a_process_ended) {
  EXPECT_EQ(to_string(process_exit{process_exit::kind::exited, 0, {}}),
            "exited with code 0");
  EXPECT_EQ(to_string(process_exit{process_exit::kind::signaled, 11, {}}),
            "killed by signal 11 (SIGSEGV)");
  EXPECT_EQ(to_string(process_exit{process_exit::kind::signaled, 63, {}}),
            "killed by signal 63");
  EXPECT_EQ(to_string(process_exit{process_exit::kind::lost, 0, {}}),
            "ended with its spawner");
}

TEST(process_exit_test, prefers_what_the_process_said_itself) {
  EXPECT_EQ(to_string(process_exit{process_exit::kind::signaled, 6, "why"}),
            "why");
}
