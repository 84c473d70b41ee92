#include "troupe/runtime/run/run_board.hpp"

#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class run_board_test : public testing::Test {
protected:
  run_board_test() {
    board.on_change([this](run_state) { ++changes; });
  }

  static result outcome(std::uint64_t attempts) {
    result x;
    x.status = run_status_kind::finished;
    x.attempts = attempts;
    return x;
  }

  run_board board;
  int changes = 0;
};

TEST_F(run_board_test, shows_the_last_status) {
  EXPECT_EQ(board.status(), run_status{});
  board.show({.state = run_state::running, .reports = 3}, {{"loss", 0.5}});
  EXPECT_EQ(board.status().reports, 3u);
  EXPECT_EQ(board.status().last_metrics, (metrics{{"loss", 0.5}}));
}

TEST_F(run_board_test, calls_for_a_new_state_but_not_for_every_report) {
  board.show({.state = run_state::running, .reports = 1});
  EXPECT_EQ(changes, 1);
  board.show({.state = run_state::running, .reports = 2});
  EXPECT_EQ(changes, 1);
  board.show({.state = run_state::finished, .reports = 2});
  EXPECT_EQ(changes, 2);
}

TEST_F(run_board_test, gives_every_note_once_in_order) {
  board.note("first");
  board.note("second");
  EXPECT_EQ(changes, 2);
  EXPECT_THAT(board.take_notes(), ElementsAre("first", "second"));
  EXPECT_THAT(board.take_notes(), IsEmpty());
}

TEST_F(run_board_test, keeps_the_newest_notes_until_they_are_taken) {
  for (std::size_t i = 0; i < run_board::max_notes + 3; ++i)
    board.note(std::to_string(i));
  auto notes = board.take_notes();
  ASSERT_EQ(notes.size(), run_board::max_notes + 1);
  EXPECT_EQ(notes[0], "3 older notes were dropped");
  EXPECT_EQ(notes[1], "3");
  EXPECT_EQ(notes.back(), std::to_string(run_board::max_notes + 2));
  board.note("next");
  EXPECT_THAT(board.take_notes(), ElementsAre("next"));
}

TEST_F(run_board_test, has_no_outcome_before_the_run_is_over) {
  EXPECT_FALSE(board.outcome());
  board.prepare(outcome(1));
  EXPECT_FALSE(board.outcome());
  EXPECT_EQ(board.prepared().attempts, 1u);
  board.prepare(outcome(2));
  board.finish();
  EXPECT_EQ(changes, 1);
  ASSERT_TRUE(board.outcome());
  EXPECT_EQ(board.outcome()->attempts, 2u);
  EXPECT_EQ(board.wait().status, run_status_kind::finished);
}

TEST_F(run_board_test, wakes_all_that_wait_for_the_end) {
  auto wait = [this] { return board.wait().attempts; };
  auto one = std::async(std::launch::async, wait);
  auto other = std::async(std::launch::async, wait);
  board.prepare(outcome(7));
  board.finish();
  EXPECT_EQ(one.get(), 7u);
  EXPECT_EQ(other.get(), 7u);
}

TEST_F(run_board_test, needs_no_listener) {
  board.on_change({});
  board.note("nobody hears it");
  EXPECT_EQ(changes, 0);
  EXPECT_THAT(board.take_notes(), ElementsAre("nobody hears it"));
}

} // namespace
} // namespace troupe
