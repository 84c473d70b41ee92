#include "troupe/callbacks/wandb/wandb_sink.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/support/child.hpp"
#include "tests/support/few_descriptors.hpp"
#include "tests/support/folder_elsewhere.hpp"
#include "tests/support/sink_records.hpp"

namespace troupe::internal {
namespace {

using test::bytes_of;
using test::environment_guard;
using test::few_descriptors;
using test::files_with;
using test::folder_elsewhere;
using test::run_in;
using test::sink_records;
using test::temporary_folder;
using test::write_bytes;

wandb_options offline() {
  wandb_options result;
  result.mode = wandb_mode::offline;
  result.project = "p";
  return result;
}

struct found_rows {
  std::vector<std::int64_t> steps;
  std::vector<std::int64_t> reports;
  int exits = 0;
};

// The rows of all logs of the run in *folder*, in order.
found_rows rows_in(const fs::path& folder) {
  found_rows result;
  auto all = wandb_fragments(folder / "wandb", run_in(folder).id).value();
  for (auto& x : all) {
    auto copy = x.path / "copy"; // reading cuts what is torn
    fs::copy_file(x.log(), copy);
    (void) wandb_log::reopen(copy, 7, [&](std::string_view record) {
      auto seen = see_wandb_record(record);
      if (seen.step)
        result.steps.push_back(*seen.step);
      if (seen.report)
        result.reports.push_back(*seen.report);
      result.exits += seen.exit;
    });
    fs::remove(copy);
  }
  return result;
}

using numbers = std::vector<std::int64_t>;

class wandb_sink_test : public testing::Test {
protected:
  void SetUp() override { fs::create_directory(folder / "logs"); }

  std::vector<tracker_record> reports(std::uint64_t first, std::uint64_t last) {
    std::vector<tracker_record> result;
    for (auto i = first; i <= last; ++i)
      result.push_back(record.report(i, {{{"loss", 1.0 / double(i + 1)}}}));
    return result;
  }

  temporary_folder folder;
  sink_records record;
  tracked_run run = run_in(folder.path());
};

TEST_F(wandb_sink_test, shows_config_before_the_first_record) {
  wandb_sink x{offline()};
  ASSERT_TRUE(x.check(run));
  ASSERT_TRUE(x.start(run, ""));
  auto all = wandb_fragments(folder / "wandb", run.id).value();
  ASSERT_EQ(all.size(), 1u);
  auto text = bytes_of(all[0].log());
  EXPECT_NE(text.find("optimizer/name"), text.npos);
  EXPECT_NE(text.find("\"sgd\""), text.npos);
  EXPECT_TRUE(fs::is_directory(all[0].files()));
  EXPECT_EQ(fs::read_symlink(folder / "wandb/latest-run").string(),
            all[0].name());
}

TEST_F(wandb_sink_test, writes_each_row_once_however_often_it_is_given) {
  wandb_sink x{offline()};
  ASSERT_TRUE(x.start(run, ""));
  auto rows = reports(0, 9);
  ASSERT_TRUE(x.log({rows.data(), 6}));
  ASSERT_TRUE(x.log(rows));
  ASSERT_TRUE(x.finish(run_status_kind::finished, test::record_time(20)));
  auto found = rows_in(folder.path());
  EXPECT_EQ(found.steps, (numbers{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(found.exits, 1);
}

TEST_F(wandb_sink_test,
       gives_each_process_a_folder_and_continues_behind_the_last) {
  auto rows = reports(0, 9);
  std::string state;
  {
    wandb_sink x{offline()};
    ASSERT_TRUE(x.start(run, ""));
    ASSERT_TRUE(x.log({rows.data(), 4}));
    state = x.state();
    ASSERT_TRUE(x.log({rows.data() + 4, 2})); // not confirmed
  }
  wandb_sink x{offline()};
  ASSERT_TRUE(x.start(run, state));
  ASSERT_TRUE(x.log({rows.data() + 4, 6}));
  ASSERT_TRUE(x.finish(run_status_kind::finished, test::record_time(20)));
  auto found = rows_in(folder.path());
  EXPECT_EQ(found.steps, (numbers{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(found.exits, 2) << "every log ends, W&B would wait otherwise";
  auto all = wandb_fragments(folder / "wandb", run.id).value();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_LT(all[0].time, all[1].time);
}

TEST_F(wandb_sink_test, cuts_a_torn_record_before_it_appends) {
  auto rows = reports(0, 5);
  std::string state;
  fs::path log;
  {
    wandb_sink x{offline()};
    ASSERT_TRUE(x.start(run, ""));
    ASSERT_TRUE(x.log({rows.data(), 3}));
    state = x.state();
    ASSERT_TRUE(x.log({rows.data() + 3, 1}));
    log = wandb_fragments(folder / "wandb", run.id).value()[0].log();
  }
  fs::resize_file(log, fs::file_size(log) - 5);
  wandb_sink x{offline()};
  ASSERT_TRUE(x.start(run, state));
  ASSERT_TRUE(x.log({rows.data() + 3, 3}));
  EXPECT_EQ(rows_in(folder.path()).steps, (numbers{0, 1, 2, 3, 4, 5}));
}

TEST_F(wandb_sink_test, survives_a_kill_between_any_two_steps) {
  auto rows = reports(0, 19);
  // A child is killed after 1 to 5 calls; what it confirmed is on disk, as a
  // feed stores it.
  std::size_t confirmed = 0;
  std::string state;
  for (std::size_t calls = 1; calls < 6; ++calls) {
    auto keep = folder / "state";
    test::run_in_child([&] {
      wandb_sink x{offline()};
      if (!x.start(run, state))
        return;
      write_bytes(keep, std::to_string(confirmed) + " " + x.state());
      for (auto i = confirmed; i < rows.size(); ++i) {
        if (!x.log({rows.data() + i, 1}))
          return;
        if (i == confirmed + calls)
          ::raise(SIGKILL); // written, and not confirmed
        write_bytes(keep, std::to_string(i + 1) + " " + x.state());
      }
    });
    auto kept = bytes_of(keep);
    confirmed = std::stoul(kept);
    state = kept.substr(kept.find(' ') + 1);
  }
  ASSERT_LT(confirmed, rows.size());
  wandb_sink x{offline()};
  ASSERT_TRUE(x.start(run, state));
  ASSERT_TRUE(x.log(std::span{rows}.subspan(confirmed)));
  ASSERT_TRUE(x.finish(run_status_kind::finished, test::record_time(40)));
  numbers all(rows.size());
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] = static_cast<std::int64_t>(i);
  EXPECT_EQ(rows_in(folder.path()).steps, all);
  EXPECT_EQ(rows_in(folder.path()).reports, all);
}

TEST_F(wandb_sink_test, finds_its_rows_again_without_a_state) {
  auto rows = reports(0, 4);
  {
    wandb_sink x{offline()};
    ASSERT_TRUE(x.start(run, ""));
    ASSERT_TRUE(x.log(rows));
  }
  wandb_sink x{offline()};
  ASSERT_TRUE(x.start(run, ""));
  ASSERT_TRUE(x.log(rows));
  EXPECT_EQ(rows_in(folder.path()).steps, (numbers{0, 1, 2, 3, 4}));
}

TEST_F(wandb_sink_test, finds_its_rows_again_whose_steps_begin_again) {
  std::vector<tracker_record> rows{
    record(attempt_record{}, 0), record(logged_metrics{5000, {{"loss", 1}}}, 0),
    record(attempt_record{}, 1), record(logged_metrics{0, {{"loss", 2}}}, 1),
    record(logged_metrics{1, {{"loss", 3}}}, 1)};
  std::string state;
  {
    wandb_sink x{offline()};
    ASSERT_TRUE(x.start(run, ""));
    state = x.state();
    ASSERT_TRUE(x.log(rows)); // not confirmed
  }
  rows.push_back(record(attempt_record{}, 2));
  rows.push_back(record(logged_metrics{0, {{"loss", 4}}}, 2));
  wandb_sink x{offline()};
  ASSERT_TRUE(x.start(run, state));
  ASSERT_TRUE(x.log(rows));
  EXPECT_EQ(rows_in(folder.path()).steps, (numbers{5000, 5001, 5002, 5003}));
}

TEST_F(wandb_sink_test, makes_no_folder_for_a_run_that_only_ends_again) {
  std::string state;
  {
    wandb_sink x{offline()};
    ASSERT_TRUE(x.start(run, ""));
    ASSERT_TRUE(x.finish(run_status_kind::aborted, test::record_time(20)));
    state = x.state();
  }
  wandb_sink x{offline()};
  ASSERT_TRUE(x.start(run, state));
  ASSERT_TRUE(x.finish(run_status_kind::aborted, test::record_time(20)));
  EXPECT_EQ(wandb_fragments(folder / "wandb", run.id).value().size(), 1u);
  EXPECT_EQ(rows_in(folder.path()).exits, 1);
  auto more = reports(0, 0);
  ASSERT_TRUE(x.start(run, x.state()));
  ASSERT_TRUE(x.log(more));
  EXPECT_EQ(wandb_fragments(folder / "wandb", run.id).value().size(), 2u);
}

TEST_F(wandb_sink_test, says_how_the_run_ended_after_a_crash_before_the_end) {
  std::string state;
  {
    wandb_sink x{offline()};
    ASSERT_TRUE(x.start(run, ""));
    state = x.state();
  }
  {
    wandb_sink x{offline()};
    ASSERT_TRUE(x.start(run, state));
    state = x.state(); // the log that was mended is known now
  }
  wandb_sink x{offline()};
  ASSERT_TRUE(x.start(run, state));
  ASSERT_TRUE(x.finish(run_status_kind::finished, test::record_time(20)));
  auto all = wandb_fragments(folder / "wandb", run.id).value();
  // exit {exit_code 0, runtime 10 s} against exit {exit_code 1}
  EXPECT_TRUE(
    bytes_of(all.back().log())
      .ends_with("\x92\x01\x04\x08" + std::string(1, '\0') + "\x10\x0a"));
  EXPECT_EQ(rows_in(folder.path()).exits, static_cast<int>(all.size()));
}

TEST_F(wandb_sink_test, refuses_only_the_record_whose_file_is_gone) {
  wandb_sink x{offline()};
  ASSERT_TRUE(x.start(run, ""));
  logged_image image{3, "sample", folder / "gone.png", 1, 1, 1};
  std::vector<tracker_record> records{record.report(0, {{{"a", 1}}}),
                                      record(image),
                                      record.report(1, {{{"a", 2}}})};
  auto result = x.log(records);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().what, sink_failure::kind::rejected);
  EXPECT_EQ(result.error().accepted, 1u);
  EXPECT_NE(result.error().reason.message.find("gone.png"), std::string::npos);
  ASSERT_TRUE(x.log({&records[2], 1}));
  EXPECT_EQ(rows_in(folder.path()).reports, (numbers{0, 1}));
}

TEST_F(wandb_sink_test, refuses_no_record_whose_file_cannot_be_read_now) {
  write_bytes(folder / "a.png", "bytes");
  wandb_sink x{offline()};
  ASSERT_TRUE(x.start(run, ""));
  auto one = record(logged_image{3, "sample", folder / "a.png", 1, 1, 1});
  {
    few_descriptors none;
    auto result = x.log({&one, 1});
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().what, sink_failure::kind::transient);
    EXPECT_TRUE(result.error().suspect) << "it is refused if that lasts";
  }
  EXPECT_TRUE(x.log({&one, 1}));
}

TEST_F(wandb_sink_test, copies_files_of_another_file_system) {
  folder_elsewhere elsewhere;
  write_bytes(elsewhere / "a", "bytes");
  wandb_sink x{offline()};
  ASSERT_TRUE(x.start(run, ""));
  auto one = record(logged_artifact{elsewhere / "a", "sub/a"});
  auto result = x.log({&one, 1});
  ASSERT_TRUE(result) << result.error().reason.message;
  auto copies = files_with(folder.path(), "bytes");
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_TRUE(copies[0].string().ends_with("/files/sub/a")) << copies[0];
}

TEST_F(wandb_sink_test, keeps_names_within_its_folder) {
  wandb_sink x{offline()};
  ASSERT_TRUE(x.start(run, ""));
  write_bytes(folder / "a", "a");
  for (auto name : {"../a", "/a", "b/../../a", ""}) {
    auto one = record(logged_artifact{folder / "a", name});
    auto result = x.log({&one, 1});
    ASSERT_FALSE(result) << name;
    EXPECT_EQ(result.error().what, sink_failure::kind::rejected) << name;
  }
}

TEST_F(wandb_sink_test, starts_again_once_the_log_can_be_opened) {
  wandb_sink x{offline()};
  ASSERT_TRUE(x.start(run, ""));
  auto rows = reports(0, 1);
  auto root = folder / "wandb";
  auto log = wandb_fragments(root, run.id).value()[0].log();
  auto keep = bytes_of(log);
  {
    // The log is no longer a file, as if the disk had failed.
    wandb_sink y{offline()};
    fs::remove(log);
    fs::create_directory(log);
    auto failed = y.start(run, x.state());
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().what, sink_failure::kind::transient);
    fs::remove(log);
    write_bytes(log, keep);
    ASSERT_TRUE(y.start(run, x.state()));
    ASSERT_TRUE(y.log(rows));
  }
  EXPECT_EQ(rows_in(folder.path()).steps, (numbers{0, 1}));
}

TEST_F(wandb_sink_test, does_nothing_when_disabled) {
  environment_guard guard{{{"WANDB_MODE", "disabled"}}};
  wandb_sink x{{}};
  auto rows = reports(0, 1);
  ASSERT_TRUE(x.start(run, ""));
  ASSERT_TRUE(x.log(rows));
  ASSERT_TRUE(x.finish(run_status_kind::finished, test::record_time(3)));
  EXPECT_FALSE(fs::exists(folder / "wandb"));
}

TEST_F(wandb_sink_test, samples_the_host_at_most_every_ten_seconds) {
  run.status = [] { return run_status{}; };
  wandb_sink x{offline()};
  ASSERT_TRUE(x.start(run, ""));
  for (auto& row : reports(0, 2))
    ASSERT_TRUE(x.log({&row, 1}));
  auto text =
    bytes_of(wandb_fragments(folder / "wandb", run.id).value().front().log());
  auto first = text.find("proc.memory.rssMB");
  ASSERT_NE(first, text.npos);
  EXPECT_EQ(text.find("proc.memory.rssMB", first + 1), text.npos);
}

TEST_F(wandb_sink_test, leaves_out_what_is_not_finite_on_request) {
  auto options = offline();
  options.non_finite = non_finite::skip;
  wandb_sink x{options};
  ASSERT_TRUE(x.start(run, ""));
  auto row = record.report(
    0, {{{"nan", std::nan("")}, {"inf", HUGE_VAL}, {"fine", 1.5}}});
  ASSERT_TRUE(x.log({&row, 1}));
  auto text =
    bytes_of(wandb_fragments(folder / "wandb", run.id).value().front().log());
  EXPECT_EQ(text.find("NaN"), text.npos);
  EXPECT_EQ(text.find("Infinity"), text.npos);
  EXPECT_NE(text.find("fine"), text.npos);
}

TEST_F(wandb_sink_test, stays_offline_without_a_program_or_a_key_and_says_how) {
  environment_guard guard{{{"HOME", folder.path().string()},
                           {"NETRC", ""},
                           {"WANDB_API_KEY", ""},
                           {"WANDB_IDENTITY_TOKEN_FILE", ""},
                           {"WANDB_MODE", "online"}}};
  for (std::string program : {"no-such-program", "sh"}) {
    wandb_options options;
    options.program = program;
    options.dir = folder / program;
    wandb_sink x{options};
    ASSERT_TRUE(x.start(run, ""));
    auto rows = reports(0, 1);
    EXPECT_TRUE(x.log(rows));
    EXPECT_TRUE(x.finish(run_status_kind::finished, test::record_time(9)));
    auto notes = x.take_notes();
    ASSERT_EQ(notes.size(), 1u);
    auto& said = notes.front();
    EXPECT_TRUE(said.starts_with("the run stays offline: ")) << said;
    EXPECT_NE(said.find("WANDB_API_KEY"), said.npos) << said;
    EXPECT_NE(said.find("wandb sync --yes '"
                        + (options.dir / "wandb/offline-run-").string()),
              said.npos)
      << said;
  }
}

// A program that plays W&B's client; *body* is a shell script.
fs::path client_in(const fs::path& folder, const std::string& body) {
  auto path = folder / "client";
  write_bytes(path, "#!/bin/sh\n" + body);
  fs::permissions(path, fs::owner_all);
  return path;
}

TEST_F(wandb_sink_test, passes_the_key_to_the_client_only) {
  environment_guard guard{{{"HOME", folder.path().string()},
                           {"WANDB_API_KEY", ""},
                           {"WANDB_RESUME", ""}}};
  wandb_options options;
  options.mode = wandb_mode::online;
  options.api_key = "planted-secret-1234567890";
  // Succeeds only with the key.
  options.program =
    client_in(folder.path(),
              "[ \"$WANDB_API_KEY\" = planted-secret-1234567890 ] || exit 1\n"
              "[ -z \"${WANDB_RESUME+set}\" ] || exit 1\n"
              "shift; [ \"$1\" = sync ] && exit 0\n"
              "shift; for x; do for log in \"$x\"/*.wandb; do\n"
              ": >\"$log.synced\"; done; done\n")
      .string();
  wandb_sink x{options};
  ASSERT_TRUE(x.start(run, ""));
  auto rows = reports(0, 1);
  ASSERT_TRUE(x.log(rows));
  auto done = x.finish(run_status_kind::finished, test::record_time(9));
  ASSERT_TRUE(done) << done.error().reason.message;
  fs::remove(options.program);
  EXPECT_TRUE(files_with(folder.path(), "planted-secret").empty());
  EXPECT_EQ((x.options() + x.state()).find("planted-secret"),
            std::string::npos);
}

TEST_F(wandb_sink_test, repeats_the_message_of_the_client_without_the_key) {
  wandb_options options;
  options.mode = wandb_mode::online;
  options.api_key = "planted-secret-1234567890";
  options.program =
    client_in(folder.path(), "echo \"ERROR 401 for $WANDB_API_KEY\"\n")
      .string();
  wandb_sink x{options};
  ASSERT_TRUE(x.start(run, ""));
  auto done = x.finish(run_status_kind::finished, test::record_time(9));
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().what, sink_failure::kind::transient);
  auto& said = done.error().reason.message;
  EXPECT_NE(said.find("ERROR 401"), said.npos) << said;
  EXPECT_EQ(said.find("planted-secret"), said.npos) << said;
  EXPECT_TRUE(files_with(folder.path(), "planted-secret").empty());
}

TEST_F(wandb_sink_test, ends_a_hanging_client_when_the_run_is_cancelled) {
  wandb_options options;
  options.mode = wandb_mode::online;
  options.api_key = "k";
  options.finish_timeout = std::chrono::hours{1};
  options.program = client_in(folder.path(), "exec sleep 1000\n").string();
  std::stop_source stop;
  run.cancelled = stop.get_token();
  wandb_sink x{options};
  ASSERT_TRUE(x.start(run, ""));
  stop.request_stop();
  auto done = x.finish(run_status_kind::finished, test::record_time(9));
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().reason.code, ec::stopped);
}

} // namespace
} // namespace troupe::internal
