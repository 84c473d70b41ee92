#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/peers/wandb/wandb_service.hpp"
#include "tests/support/peers.hpp"
#include "tests/support/sink_records.hpp"
#include "troupe/callbacks/wandb/wandb_sink.hpp"

namespace troupe::internal {
namespace {

using test::environment_guard;
using test::record_time;
using test::run_in;
using test::sink_records;
using test::temporary_folder;
using test::wandb_service;

constexpr auto secret = "planted0secret0planted0secret0planted0se";

// Processes whose environment contains the scratch home.
int strays(const fs::path& home) {
  auto count = 0;
  boost::system::error_code code;
  for (fs::directory_iterator i{"/proc"}, end; i != end; i.increment(code)) {
    std::ifstream in{(i->path() / "environ").string(), std::ios::binary};
    std::string text{std::istreambuf_iterator<char>{in}, {}};
    count += text.find("HOME=" + home.string()) != text.npos;
  }
  return count;
}

class wandb_sync_test : public testing::Test {
protected:
  void SetUp() override {
    TROUPE_NEEDS_PEERS();
    fs::create_directory(folder / "logs");
    home_folder.emplace();
    auto path = test::peer_programs()->string() + ":" + std::getenv("PATH");
    variables.emplace(
      std::map<std::string, std::string>{{"HOME", home_folder->path().string()},
                                         {"PATH", path},
                                         {"WANDB_BASE_URL", service.url()},
                                         {"WANDB_API_KEY", secret},
                                         {"WANDB_ERROR_REPORTING", "false"},
                                         {"WANDB_MODE", "online"},
                                         {"DO_NOT_TRACK", "true"}});
    options.project = "p";
    options.tags = {"a"};
  }

  void TearDown() override {
    if (home_folder) {
      EXPECT_EQ(strays(home_folder->path()), 0) << "the client is still there";
      EXPECT_TRUE(test::files_with(folder.path(), secret).empty());
    }
  }

  std::vector<tracker_record> reports(std::uint64_t first, std::uint64_t last) {
    std::vector<tracker_record> result;
    for (auto i = first; i <= last; ++i)
      result.push_back(record.report(i, {{{"loss", 1.0 / double(i + 1)}}}));
    return result;
  }

  // All rows 0 to *last*, once and in order.
  void expect_rows(std::int64_t last) const {
    auto found = service.run();
    ASSERT_EQ(found.rows.size(), static_cast<std::size_t>(last + 1));
    for (std::int64_t i = 0; i <= last; ++i) {
      auto& row = found.rows[static_cast<std::size_t>(i)];
      EXPECT_EQ(row.at("_step"), i);
      EXPECT_EQ(row.at("troupe/report"), i);
      EXPECT_EQ(row.at("loss"), 1.0 / double(i + 1));
    }
    EXPECT_EQ(found.misplaced, 0);
  }

  wandb_service service;
  temporary_folder folder;
  std::optional<temporary_folder> home_folder;
  std::optional<environment_guard> variables;
  wandb_options options;
  sink_records record;
  tracked_run run = run_in(folder.path());
};

TEST_F(wandb_sync_test, uploads_while_the_run_lasts) {
  wandb_sink sink{options};
  ASSERT_TRUE(sink.start(run, ""));
  auto rows = reports(0, 9);
  ASSERT_TRUE(sink.log({rows.data(), 5}));
  EXPECT_TRUE(service.wait_for_rows(5)) << "sent before the end";
  test::write_bytes(folder / "logs/rank_0.log", "hello\nworld\n");
  ASSERT_TRUE(sink.log({rows.data() + 5, 5}));
  auto done = sink.finish(run_status_kind::finished, record_time(20));
  ASSERT_TRUE(done) << done.error().reason.message;
  expect_rows(9);
  auto found = service.run();
  EXPECT_TRUE(found.complete);
  EXPECT_EQ(found.exit_code, 0);
  EXPECT_EQ(found.summary.at("loss"), 0.1);
  EXPECT_EQ(found.config.at("lr").at("value"), 0.1);
  EXPECT_EQ(found.bucket.at("tags"), nlohmann::json{"a"});
  EXPECT_NE(nlohmann::json(found.output).dump().find("world"),
            std::string::npos);
}

TEST_F(wandb_sync_test, uploads_at_the_end_what_live_upload_left) {
  // A client without the beta command.
  auto client = folder / "wandb-old";
  test::write_bytes(client,
                    "#!/bin/sh\n[ \"$1\" = sync ] || exit 2\nexec wandb "
                    "\"$@\"\n");
  fs::permissions(client, fs::owner_all);
  options.program = client.string();
  wandb_sink sink{options};
  ASSERT_TRUE(sink.start(run, ""));
  auto rows = reports(0, 4);
  ASSERT_TRUE(sink.log(rows));
  auto done = sink.finish(run_status_kind::errored, record_time(20));
  ASSERT_TRUE(done) << done.error().reason.message;
  expect_rows(4);
  EXPECT_EQ(service.run().exit_code, 1);
}

TEST_F(wandb_sync_test, joins_the_folders_of_a_resumed_run) {
  auto rows = reports(0, 9);
  auto keep = folder / "state";
  auto before = 4u;
  // The first process is killed after writing rows that were not confirmed.
  auto first = ::fork();
  if (first == 0) {
    wandb_sink sink{options};
    if (sink.start(run, "") && sink.log({rows.data(), before})) {
      test::write_bytes(keep, sink.state());
      if (sink.log({rows.data() + before, 2}))
        ::pause();
    }
    ::_exit(1);
  }
  EXPECT_TRUE(service.wait_for_rows(6));
  ::kill(first, SIGKILL);
  ::waitpid(first, nullptr, 0);
  wandb_sink sink{options};
  ASSERT_TRUE(sink.start(run, test::bytes_of(keep)));
  ASSERT_TRUE(sink.log(std::span{rows}.subspan(before)));
  auto done = sink.finish(run_status_kind::finished, record_time(40));
  ASSERT_TRUE(done) << done.error().reason.message;
  expect_rows(9);
  EXPECT_EQ(service.run().exit_code, 0);
  EXPECT_EQ(wandb_fragments(folder / "wandb", run.id).value().size(), 2u);
}

TEST_F(wandb_sync_test, uploads_folders_that_were_written_offline) {
  options.mode = wandb_mode::offline;
  wandb_sink sink{options};
  ASSERT_TRUE(sink.start(run, ""));
  auto rows = reports(0, 2);
  test::write_bytes(folder / "a.txt", "a");
  rows.push_back(record(logged_artifact{folder / "a.txt", "a.txt"}));
  ASSERT_TRUE(sink.log(rows));
  ASSERT_TRUE(sink.finish(run_status_kind::finished, record_time(20)));
  EXPECT_TRUE(service.run().rows.empty());
  auto fragment = wandb_fragments(folder / "wandb", run.id).value().at(0);
  auto sync = test::run_peer(
    {"wandb", "sync", "--yes", fragment.path.string()},
    {{"WANDB_BASE_URL", service.url()}, {"WANDB_API_KEY", secret}});
  EXPECT_EQ(sync.exit_code, 0) << sync.output;
  EXPECT_TRUE(fragment.is_synced()) << sync.output;
  expect_rows(2);
  auto files = nlohmann::json(service.run().files).dump();
  EXPECT_NE(files.find("a.txt"), files.npos) << files;
}

TEST_F(wandb_sync_test, gives_up_in_time_while_the_service_is_down) {
  environment_guard down{{{"WANDB_BASE_URL", "http://127.0.0.1:9"}}};
  options.finish_timeout = std::chrono::seconds{1};
  wandb_sink sink{options};
  ASSERT_TRUE(sink.start(run, ""));
  auto rows = reports(0, 2);
  ASSERT_TRUE(sink.log(rows));
  auto done = sink.finish(run_status_kind::finished, record_time(20));
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().what, sink_failure::kind::transient);
  EXPECT_EQ(done.error().reason.code, ec::timeout);
}

} // namespace
} // namespace troupe::internal
