#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/peer_server.hpp"
#include "tests/support/warm_python.hpp"
#include "troupe/callbacks/mlflow/mlflow_sink.hpp"

namespace troupe::internal::test {

/// How tests start MLflow's server: without optional parts, in seconds instead
/// of half a minute.
inline peer_server_options
mlflow_server_options(std::vector<std::string> more = {},
                      std::map<std::string, std::string> environment = {}) {
  peer_server_options result{
    .command = {"mlflow", "server", "--host", "127.0.0.1", "--port", "{port}",
                "--workers", "1", "--backend-store-uri",
                "sqlite:///{home}/m.db"}};
  if (more.empty())
    more = {"--artifacts-destination", "{home}/artifacts"};
  result.command.insert(result.command.end(), more.begin(), more.end());
  result.environment = std::move(environment);
  result.environment["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false";
  return result;
}

/// The server that all tests of the program share, with one experiment each.
inline peer_server& shared_mlflow() {
  static peer_server result{mlflow_server_options()};
  return result;
}

/// A run as trackers see it, and its records, one second apart from a fixed
/// time on.
class mlflow_fixture : public testing::Test {
protected:
  mlflow_fixture() {
    run.name = "a run";
    run.path = folder / "storage" / "a run";
    fs::create_directories(run.path / "sinks");
    run.id = "00112233445566778899aabbccddeeff";
    run.id.replace(0, 8, std::to_string(10000000 + ++counter));
    run.experiment =
      testing::UnitTest::GetInstance()->current_test_info()->name();
    run.config = {{"lr", 0.1}, {"optimizer/name", "adam"}, {"layers", 3}};
    run.tags = {{"troupe.storage_path", run.path.string()},
                {"troupe.version", "0.1.0"},
                {"user", "me"},
                {"program", "train"},
                {"host", "here"}};
    run.start_time = begin;
  }

  static tracker_record record(std::int64_t second,
                               tracker_record::content_type content) {
    tracker_record result;
    result.time = begin + std::chrono::seconds{second};
    result.end = static_cast<std::uint64_t>(second + 1) * 100;
    result.content = std::move(content);
    return result;
  }

  /// A report of one rank.
  static tracker_record row(std::uint64_t index, metrics values) {
    return record(
      static_cast<std::int64_t>(index),
      journaled_batch{.index = index, .values = {std::move(values)}});
  }

  static tracker_record value(std::int64_t step, metrics values) {
    return record(step, logged_metrics{step, std::move(values)});
  }

  /// MLflow's id of the run of *x*.
  static std::string run_id(const sink& x) {
    auto text = x.state();
    const std::string key = "run_id\\\":\\\"";
    auto i = text.find(key);
    return i == text.npos ? "" : text.substr(i + key.size(), 32);
  }

  /// What *script* prints. It has MLflow's client for *uri* as `client` and the
  /// run *id* as `run`.
  static std::string asked(const std::string& uri, const std::string& id,
                           const std::string& script) {
    static warm_python python{"mlflow", {{"MLFLOW_ALLOW_FILE_STORE", "true"}}};
    auto result =
      python.run("import sys, mlflow, logging\n"
                 "logging.disable(logging.WARNING)\n"
                 "client = mlflow.MlflowClient(tracking_uri=sys.argv[1])\n"
                 "mlflow.set_tracking_uri(sys.argv[1])\n"
                 "def points(key, id=sys.argv[2]):\n"
                 "  return [(m.step, m.value, m.timestamp) for m in"
                 " client.get_metric_history(id, key)]\n"
                 "run = client.get_run(sys.argv[2])\n"
                   + script,
                 {uri, id});
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return result.output;
  }

  static std::string said(const sink_result& x) {
    return x ? "" : x.error().reason.message;
  }

  static constexpr auto begin =
    std::chrono::system_clock::time_point{std::chrono::seconds{1'700'000'000}};

  static inline int counter = 0;
  temporary_folder folder;
  tracked_run run;
};

} // namespace troupe::internal::test
