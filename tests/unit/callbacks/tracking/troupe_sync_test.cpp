// `troupe sync`, run as a user would.

#include <unistd.h>

#include <algorithm>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/run_command.hpp"
#include "tests/support/written_run.hpp"
#include "troupe/callbacks/tracking/record_reader.hpp"

namespace troupe::internal::test {

namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr uid_t stranger = 65534;

std::string quoted(const std::string& x) {
  return "'" + x + "'";
}

class troupe_sync_test : public testing::Test {
protected:
  troupe_sync_test() {
    fs::create_directories(run.path() / "sinks");
    run.begin_attempt(0, 0);
    run.report({.index = 0, .seconds = 1, .values = {{{"loss", 0.5}}}});
    run.event(2, "run_ended", {{"status", "finished"}});
  }

  void options(const std::string& tracker, const std::string& json) {
    write_bytes(run.path() / "sinks" / (tracker + ".options"), json);
  }

  /// Its exit code; what it printed goes to `output`.
  int sync(const std::string& arguments = {},
           const std::string& variables = {}) {
    auto done = run_command(
      variables + " '" + TROUPE_PROGRAM + "' sync "
      + quoted(run.path().string())
      + (arguments.find("--timeout") == arguments.npos ? " --timeout 20 " : " ")
      + arguments);
    output = std::move(done.output);
    return done.exit_code;
  }

  written_run run;
  temporary_folder folder;
  std::string output;
};

} // namespace

TEST_F(troupe_sync_test, runs_no_program_that_a_folder_names) {
  auto evil = folder / "evil";
  write_bytes(evil, "#!/bin/sh\necho \"$WANDB_API_KEY\" >> '"
                      + (folder / "stolen").string() + "'\n");
  fs::permissions(evil, fs::owner_all);
  options("wandb", R"({"mode":"online","program":")" + evil.string() + "\"}");
  EXPECT_EQ(sync({}, "WANDB_API_KEY=0123456789012345678901234567890123456789"),
            1);
  EXPECT_FALSE(fs::exists(folder / "stolen")) << output;
  EXPECT_THAT(output, HasSubstr("program=\"" + evil.string() + "\""));
  EXPECT_THAT(output, HasSubstr("--set wandb.program=VALUE"));
}

TEST_F(troupe_sync_test, takes_servers_and_paths_from_its_caller) {
  auto tree = folder / "tree";
  options("mlflow", R"({"tracking_uri":")" + tree.string()
                      + R"(","experiment":"digits"})");
  EXPECT_EQ(sync(), 1);
  EXPECT_THAT(output, HasSubstr("tracking_uri=\"" + tree.string() + "\""));
  EXPECT_FALSE(fs::exists(tree));
  EXPECT_EQ(sync("--set mlflow.tracking_uri=" + quoted(tree.string())), 0)
    << output;
  EXPECT_TRUE(fs::exists(tree));
  // What is harmless comes from the folder, and is shown.
  EXPECT_THAT(output, HasSubstr("experiment=\"digits\""));
  // Nothing is left to send.
  EXPECT_EQ(sync(), 0) << output;
}

TEST_F(troupe_sync_test, takes_a_servers_address_from_the_environment) {
  auto tree = folder / "tree";
  options("mlflow", R"({"tracking_uri":")" + tree.string() + "\"}");
  EXPECT_EQ(sync({}, "MLFLOW_TRACKING_URI=" + quoted(tree.string())), 0)
    << output;
  EXPECT_TRUE(fs::exists(tree));
}

TEST_F(troupe_sync_test, refuses_an_unknown_option) {
  options("csv", R"({"shell":"true"})");
  EXPECT_EQ(sync(), 1);
  EXPECT_THAT(output, HasSubstr("shell="));
  EXPECT_EQ(sync("--set csv.no_such=1"), 2);
  EXPECT_THAT(output, HasSubstr("tracker csv has no option no_such; it has "));
}

TEST_F(troupe_sync_test, refuses_a_value_that_an_option_cannot_have) {
  options("mlflow", "{}");
  EXPECT_EQ(sync("--set mlflow.upload_checkpoints=maybe"), 2) << output;
  EXPECT_THAT(output, HasSubstr("option upload_checkpoints of tracker mlflow "
                                "takes true or false, not 'maybe'"));
  EXPECT_FALSE(fs::exists(run.path() / "../mlruns"));
}

TEST_F(troupe_sync_test, refuses_an_option_also_when_nothing_is_left_to_send) {
  options("csv", "{}");
  EXPECT_EQ(sync(), 0) << output;
  EXPECT_EQ(sync("--set csv.bar=1"), 2) << output;
}

TEST_F(troupe_sync_test, refuses_a_folder_that_is_not_a_runs) {
  for (auto name : {"run.json", "journal.jsonl"})
    fs::remove(run.path() / name);
  EXPECT_EQ(sync(), 2) << output;
  EXPECT_THAT(output, HasSubstr("is not the folder of a run"));
}

TEST_F(troupe_sync_test, prints_no_control_character_of_the_folder) {
  options("csv", R"({"\u001b[2J":"http://host/\u001b[2J","\u009b":1})");
  options("own\033[2J", "{}");
  for (auto args : {"", "--tracker none"}) {
    EXPECT_NE(sync(args), 0);
    EXPECT_TRUE(std::ranges::all_of(
      output, [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }))
      << testing::PrintToString(output);
  }
  EXPECT_THAT(output, HasSubstr("it has csv, own?[2J"));
}

TEST_F(troupe_sync_test, names_what_is_wrong_with_its_arguments) {
  options("csv", "{}");
  EXPECT_EQ(sync("--set csv=1"), 2);
  EXPECT_THAT(output, HasSubstr("--set: needs TRACKER.OPTION=VALUE"));
  EXPECT_EQ(sync("--fast"), 2);
  EXPECT_THAT(output, HasSubstr("not expected: --fast"));
  EXPECT_EQ(sync("another_folder"), 2);
  EXPECT_THAT(output, HasSubstr("not expected: another_folder"));
  EXPECT_EQ(sync("--timeout 20 --timeout 30"), 2);
  EXPECT_THAT(output, HasSubstr("--timeout: At Most 1 required"));
  EXPECT_EQ(sync("--tracker"), 2);
  EXPECT_THAT(output, HasSubstr("--tracker: 1 required"));
  EXPECT_THAT(output, HasSubstr("troupe sync --help lists the arguments"));
}

TEST_F(troupe_sync_test, does_not_report_as_sent_what_it_cannot_read) {
  options("csv", "{}");
  auto journal = run.path() / "journal.jsonl";
  auto lines = bytes_of(journal);
  fs::remove(journal);
  EXPECT_EQ(sync(), 1);
  EXPECT_THAT(output, HasSubstr("open " + journal.string()));
  EXPECT_THAT(output, Not(HasSubstr("all is sent")));
  write_bytes(journal, lines);
  fs::create_directory(run.path() / "sinks/csv.offset");
  EXPECT_EQ(sync(), 1);
  EXPECT_THAT(output, HasSubstr("csv.offset"));
  fs::remove(run.path() / "sinks/csv.offset");
  EXPECT_EQ(sync(), 0) << output;
  EXPECT_THAT(output, HasSubstr("csv: all is sent"));
}

TEST_F(troupe_sync_test, sends_everything_again_if_the_position_is_damaged) {
  options("csv", "{}");
  write_bytes(run.path() / "sinks/csv.offset", "{}");
  EXPECT_EQ(sync(), 0) << output;
  EXPECT_THAT(output, HasSubstr("csv.offset.damaged"));
  EXPECT_THAT(output, HasSubstr("csv: all is sent"));
  EXPECT_EQ(bytes_of(run.path() / "sinks/csv.offset.damaged"), "{}");
  EXPECT_THAT(bytes_of(run.path() / "metrics.csv"), HasSubstr("0.5"));
  EXPECT_EQ(sync(), 0) << output;
  EXPECT_THAT(output, Not(HasSubstr("damaged")));
}

TEST_F(troupe_sync_test, names_what_was_refused) {
  options("csv", "{}");
  write_bytes(run.path() / "sinks/csv.rejected.jsonl", "{}\n{}\n");
  for (auto i = 0; i < 2; ++i) {
    EXPECT_EQ(sync(), 1) << output;
    EXPECT_THAT(output, HasSubstr("csv.rejected.jsonl"));
  }
}

TEST_F(troupe_sync_test, counts_what_a_sink_of_the_users_own_has_not_taken) {
  options("lines", "{}");
  EXPECT_EQ(sync(), 1);
  EXPECT_THAT(output, HasSubstr("lines: 3 records are unsent"));
  sink_position taken;
  auto journal = run.path() / "journal.jsonl";
  taken.offset = fs::file_size(journal);
  taken.line_end = line_end_at(journal, taken.offset).value();
  ASSERT_TRUE(save_position(taken, run.path() / "sinks/lines.offset"));
  EXPECT_EQ(sync(), 0) << output;
  EXPECT_THAT(output, HasSubstr("lines: all is sent"));
}

TEST_F(troupe_sync_test, refuses_what_belongs_to_someone_else) {
  options("csv", "{}");
  if (::geteuid() != 0)
    GTEST_SKIP() << "only root can give files away";
  auto file = run.path() / "sinks/csv.options";
  ASSERT_EQ(::chown(file.c_str(), stranger, stranger), 0);
  EXPECT_EQ(sync(), 1);
  EXPECT_THAT(output, HasSubstr("csv.options"));
  ASSERT_EQ(::chown(file.c_str(), 0, 0), 0);
  ASSERT_EQ(::chown(run.path().c_str(), stranger, stranger), 0);
  EXPECT_EQ(sync(), 1);
  EXPECT_FALSE(fs::exists(run.path() / "metrics.csv"));
  ASSERT_EQ(::chown(run.path().c_str(), 0, 0), 0);
  EXPECT_EQ(sync(), 0) << output;
  EXPECT_TRUE(fs::exists(run.path() / "metrics.csv"));
}

TEST_F(troupe_sync_test, does_not_report_files_as_uploaded) {
  options("wandb", "{}");
  auto without_key = "HOME=" + quoted(folder.path().string())
                     + " NETRC= WANDB_API_KEY= WANDB_IDENTITY_TOKEN_FILE= "
                       "WANDB_MODE= WANDB_DIR= COMET_API_KEY= ";
  for (int i = 0; i < 2; ++i) { // Also if there is nothing left to send.
    EXPECT_EQ(sync("--set wandb.program=sh", without_key), 1) << output;
    EXPECT_THAT(output, Not(HasSubstr("all is sent")));
    EXPECT_THAT(output,
                HasSubstr("wandb: written to " + (run.path() / "wandb").string()
                          + ", not uploaded: WANDB_API_KEY is not set"));
  }
  fs::remove(run.path() / "sinks/wandb.options");
  options("comet", "{}");
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(sync({}, without_key), 1) << output;
    EXPECT_THAT(output, Not(HasSubstr("all is sent")));
    EXPECT_THAT(output, HasSubstr(".zip', not uploaded: COMET_API_KEY"));
  }
  // A key that is set later uploads nothing by itself.
  EXPECT_EQ(sync({}, without_key + "COMET_API_KEY=k "), 1) << output;
  EXPECT_THAT(output, HasSubstr("the run had no COMET_API_KEY"));
}

TEST_F(troupe_sync_test, does_not_report_as_sent_what_settings_hide) {
  auto home = "HOME=" + quoted(folder.path().string())
              + " NETRC= WANDB_API_KEY= WANDB_IDENTITY_TOKEN_FILE= "
                "WANDB_DIR= COMET_API_KEY= ";
  options("wandb", "{}");
  options("comet", "{}");
  ASSERT_EQ(sync("--set wandb.program=sh", home + "WANDB_MODE= "), 1);
  // Both have taken everything and uploaded nothing.
  EXPECT_EQ(sync("--tracker wandb", home + "WANDB_MODE=on "), 1) << output;
  EXPECT_THAT(output, HasSubstr("wandb: what is in files only is "
                                "unknown: WANDB_MODE is 'on'"));
  EXPECT_EQ(sync("--tracker comet", home + "COMET_URL_OVERRIDE=host "), 1)
    << output;
  EXPECT_THAT(output, HasSubstr("comet: what is in files only is "
                                "unknown: COMET_URL_OVERRIDE"));
  // Nor what it cannot list.
  fs::remove_all(run.path() / "wandb");
  write_bytes(run.path() / "wandb", "");
  EXPECT_EQ(sync("--tracker wandb", home + "WANDB_MODE= "), 1) << output;
  EXPECT_THAT(output, HasSubstr("list " + (run.path() / "wandb").string()));
  options("wandb", "no options");
  EXPECT_EQ(sync("--tracker wandb", home + "WANDB_MODE= "), 1) << output;
  EXPECT_THAT(output, Not(HasSubstr("all is sent")));
}

TEST_F(troupe_sync_test, accepts_files_that_were_asked_for) {
  options("wandb", R"({"mode":"offline"})");
  options("comet", R"({"mode":"offline"})");
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(sync(), 0) << output;
    EXPECT_THAT(output, Not(HasSubstr("all is sent")));
    EXPECT_THAT(output, HasSubstr("wandb: written to "));
    EXPECT_THAT(output, HasSubstr("comet: written to "));
    EXPECT_THAT(output, HasSubstr("not uploaded: the mode is offline; next: "));
  }
}

TEST_F(troupe_sync_test, uploads_files_once_there_is_a_key) {
  auto client = folder / "client";
  write_bytes(client, "#!/bin/sh\nfor x; do for log in \"$x\"/*.wandb; do\n"
                      "[ -e \"$log\" ] && : >\"$log.synced\"; done; done\n");
  fs::permissions(client, fs::owner_all);
  options("wandb", "{}");
  auto home = "HOME=" + quoted(folder.path().string())
              + " NETRC= WANDB_IDENTITY_TOKEN_FILE= WANDB_MODE= WANDB_DIR= ";
  auto program = "--set wandb.program=" + quoted(client.string());
  EXPECT_EQ(sync(program, home + "WANDB_API_KEY= "), 1) << output;
  EXPECT_EQ(sync(program, home + "WANDB_API_KEY=k "), 0) << output;
  EXPECT_THAT(output, HasSubstr("wandb: all is sent"));
}

TEST_F(troupe_sync_test,
       refuses_options_of_a_tracker_that_the_run_does_not_have) {
  options("csv", "{}");
  EXPECT_EQ(sync("--set mlfow.tracking_uri=http://host"), 2) << output;
  EXPECT_THAT(output, HasSubstr("no tracker called 'mlfow'; it has csv"));
  EXPECT_FALSE(fs::exists(run.path() / "metrics.csv"));
  EXPECT_EQ(sync("--tracker cvs"), 2) << output;
}

TEST_F(troupe_sync_test, refuses_a_missing_folder) {
  options("csv", "{}");
  auto before = fs::current_path();
  fs::current_path(run.path());
  auto status = std::system("'" TROUPE_PROGRAM "' sync '' 2>/dev/null");
  EXPECT_EQ(std::system("'" TROUPE_PROGRAM "' sync . >/dev/null 2>&1"), 0);
  fs::current_path(before);
  EXPECT_EQ(WEXITSTATUS(status), 2);
  EXPECT_EQ(sync("--tracker ''"), 2) << output;
  EXPECT_THAT(output, HasSubstr("--tracker: needs a value"));
}

TEST_F(troupe_sync_test, names_the_limit_of_a_number) {
  options("csv", "{}");
  for (auto seconds : {"2147483648", "99999999999999999999", "-1", "1.5", "s"})
    EXPECT_EQ(sync(std::string{"--timeout "} + seconds), 2) << output;
  EXPECT_THAT(
    output, AllOf(HasSubstr("Value s not in range"), HasSubstr("2147483647")));
  EXPECT_EQ(sync("--timeout 2147483647"), 0) << output;
}
} // namespace troupe::internal::test
