#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/loopback_server.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/callbacks/mlflow/mlflow_sink.hpp"

namespace troupe::internal::test {

/// A server that answers MLflow's requests as a test wants. (Real servers are
/// tested in tests/peers/.)
class mlflow_failures_test : public testing::Test {
protected:
  using kind = sink_failure::kind;

  mlflow_failures_test() {
    run.name = "run";
    run.path = folder / "run";
    fs::create_directories(run.path / "sinks");
    run.id = std::string(32, 'a');
    run.experiment = "/Shared/e";
    run.start_time = begin;
    set(
      "experiments/get-by-name",
      {.body =
         R"({"experiment":{"experiment_id":"1","lifecycle_stage":"active"}})"});
    set("runs/create", {.body = created()});
  }

  static std::string
  created(const std::string& artifacts = "mlflow-artifacts:/1/r1/artifacts") {
    return R"({"run":{"info":{"run_id":"r1","artifact_uri":")" + artifacts
           + R"("}}})";
  }

  loopback_reply answer(const loopback_request& x) {
    if (on_request)
      on_request(x);
    std::lock_guard guard{mutex};
    for (const auto& [part, reply] : answers)
      if (x.target.find(part) != x.target.npos)
        return reply;
    return {};
  }

  mlflow_sink to_server() {
    return mlflow_sink{{.tracking_uri = server.url()}};
  }

  /// The result of `log` with *count* reports of one value each, after a start.
  sink_result logged(mlflow_sink& x, std::size_t count = 1) {
    if (auto ok = x.start(run, ""); !ok)
      return ok;
    std::vector<tracker_record> records(count);
    for (std::size_t i = 0; i < count; ++i) {
      records[i].time = begin + std::chrono::seconds{i};
      records[i].content =
        journaled_batch{.index = i, .values = {metrics{{"loss", 1}}}};
    }
    return x.log(records);
  }

  std::vector<std::string> targets() {
    std::vector<std::string> result;
    for (const auto& x : server.requests()) {
      auto path = x.target.substr(0, x.target.find('?'));
      result.push_back(path.substr(path.find("mlflow/") + 7));
    }
    return result;
  }

  /// Sets the answer to each request whose target contains *part*.
  void set(const std::string& part, loopback_reply reply) {
    std::lock_guard guard{mutex};
    answers[part] = std::move(reply);
  }

  static constexpr auto begin =
    std::chrono::system_clock::time_point{std::chrono::seconds{1'700'000'000}};

  temporary_folder folder;
  tracked_run run;
  std::mutex mutex;
  std::map<std::string, loopback_reply> answers;
  std::function<void(const loopback_request&)> on_request;
  loopback_server server{[this](const auto& x) { return answer(x); }};
};

} // namespace troupe::internal::test
