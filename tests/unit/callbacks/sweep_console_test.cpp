#include <unistd.h>

#include <gmock/gmock.h>

#include "tests/support/temporary_folder.hpp"
#include "tests/unit/callbacks/console_fixture.hpp"
#include "troupe/callbacks/sweep_console.hpp"

namespace troupe::internal::test {

namespace {

trial trial_of(std::size_t index) {
  trial x;
  x.index = index;
  x.name = trial_name(index);
  x.params = {{"kind", "a"}, {"lr", 0.015}};
  x.metrics = {{"loss", 0.25}};
  x.reports = 12;
  x.seconds = 65;
  return x;
}

sweep_status status_of_two() {
  sweep_status x;
  x.metric = "loss";
  x.running = {trial_of(3), trial_of(4)};
  x.running[1].metrics = {};
  x.ended = 3;
  x.failed = 1;
  x.trials = 20;
  x.elapsed_s = 130;
  return x;
}

} // namespace

TEST(sweep_console_test, shows_the_trials_under_way_as_a_table) {
  EXPECT_EQ(table_text(status_of_two(), 60, 10),
            "trial       time  reports  loss  kind  lr\n"
            "trial-0003  1:05  12       0.25  a     0.015\n"
            "trial-0004  1:05  12       -     a     0.015\n"
            "2 running, 3 of 20 ended, 1 failed, 2:10\n");
}

TEST(sweep_console_test, fits_onto_the_terminal) {
  EXPECT_EQ(table_text(status_of_two(), 20, 1), "trial       time  r…\n"
                                                "trial-0003  1:05  1…\n"
                                                "2 running, 3 of 20 …\n");
}

TEST(sweep_console_test, names_the_best_trial) {
  auto x = status_of_two();
  x.best = trial_of(0);
  x.best->score = 0.125;
  x.trials.reset();
  EXPECT_EQ(totals_text(x), "2 running, 3 ended, 1 failed, 2:10; best loss "
                            "0.125: trial-0000 (kind=a lr=0.015)");
}

TEST(sweep_console_test, says_how_a_trial_has_ended) {
  auto x = trial_of(2);
  EXPECT_EQ(trial_text(x, "loss"), "trial-0002 begins: kind=a lr=0.015");
  x.status = run_status_kind::finished;
  EXPECT_EQ(trial_text(x, "loss"), "trial-0002 finished after 12 reports, "
                                   "1:05: loss=0.25 with kind=a lr=0.015");
  x.reason = "it was good enough";
  EXPECT_THAT(trial_text(x, "acc"),
              testing::HasSubstr("acc=- with kind=a lr=0.015; it was good"));
}

TEST(sweep_console_test, writes_lines_where_nothing_can_be_redrawn) {
  temporary_folder folder;
  auto path = folder / "out";
  write_bytes(path, "");
  auto out = std::fopen(path.c_str(), "w");
  {
    sweep_console console{console_style::automatic, fileno(out)};
    console.update(status_of_two());
    console.log("a trial begins");
    console.note("a trial has ended");
  }
  std::fclose(out);
  EXPECT_EQ(bytes_of(path), "troupe: a trial begins\n"
                            "troupe: a trial has ended\n");
}

// Else each line would hold the decisions of the sweep for a second.
TEST(sweep_console_test, does_not_wait_twice_for_a_blocked_console) {
  pipe_pair log;
  log.fill_up();
  sweep_console console{console_style::plain, log.writer};
  console.note("lost"); // It returns.
  console.note("lost, too");
  (void) log.seen();
  console.note("room again");
  auto text = log.seen();
  EXPECT_THAT(text, testing::HasSubstr("bytes are missing here"));
  EXPECT_TRUE(text.ends_with("troupe: room again\n")) << text;
}

TEST(sweep_console_test, redraws_the_table_below_lines_that_stay) {
  temporary_folder folder;
  auto path = folder / "out";
  write_bytes(path, "");
  auto out = std::fopen(path.c_str(), "w");
  {
    sweep_console console{console_style::live, fileno(out)};
    console.update(status_of_two());
    console.log("only for logs");
    console.note("a trial has ended");
    console.update({});
  }
  std::fclose(out);
  auto text = bytes_of(path);
  EXPECT_EQ(text.find("only for logs"), text.npos);
  EXPECT_THAT(text, testing::HasSubstr(
                      "2:10\n\x1b[4A\r\x1b[Jtroupe: a trial has ended\n"));
  EXPECT_TRUE(text.ends_with("\x1b[1A\r\x1b[J")) << "removed at the end";
}

} // namespace troupe::internal::test
