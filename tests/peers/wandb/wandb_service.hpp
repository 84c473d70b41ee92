#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/support/loopback_server.hpp"
#include "tests/support/unpacked.hpp"

namespace troupe::internal::test {

/// What W&B's service holds of one run after its client has uploaded.
struct wandb_service_run {
  std::vector<nlohmann::json> rows;
  std::vector<std::string> output;
  nlohmann::json summary;
  nlohmann::json config;
  nlohmann::json bucket; ///< What the client last said about the run.
  std::vector<nlohmann::json> stats;
  std::vector<std::string> files; ///< Paths.
  bool complete = false;
  int exit_code = -1;
  int misplaced = 0; ///< Pieces that began behind the last line.
};

/// Plays the part of W&B's service that its client needs for uploading.
class wandb_service {
public:
  wandb_service()
    : server_([this](const loopback_request& x) { return answer(x); }) {}

  std::string url() const { return server_.url(); }

  wandb_service_run run() const {
    std::lock_guard guard{mutex_};
    return run_;
  }

  /// Waits until the run has *n* rows. Returns false after a minute.
  bool wait_for_rows(std::size_t n) const {
    std::unique_lock lock{mutex_};
    return arrived_.wait_for(lock, std::chrono::minutes{1},
                             [&] { return run_.rows.size() >= n; });
  }

private:
  using json = nlohmann::json;

  loopback_reply answer(const loopback_request& x) {
    auto encoding = x.headers.find("content-encoding");
    auto body = encoding != x.headers.end() && encoding->second == "gzip"
                  ? unpacked(x.body)
                  : x.body;
    std::lock_guard guard{mutex_};
    json reply = json::object();
    if (x.target == "/graphql")
      reply = graphql(json::parse(body));
    else if (x.target.ends_with("/file_stream"))
      reply = file_stream(json::parse(body));
    arrived_.notify_all();
    loopback_reply result;
    result.body = reply.dump();
    return result;
  }

  json graphql(const json& query) {
    auto operation = query.value("operationName", "");
    auto variables = query.value("variables", json::object());
    if (operation == "UpsertBucket")
      return {{"data", {{"upsertBucket", upsert(variables)}}}};
    if (operation == "RunResumeStatus")
      return {{"data", {{"model", resume_status()}}}};
    if (operation == "CreateRunFiles")
      return {{"data", {{"createRunFiles", create_files(variables)}}}};
    if (operation == "ServerFeaturesQuery")
      return {{"data", {{"serverInfo", {{"features", json::array()}}}}}};
    return {{"data", json::object()}};
  }

  static json entity() { return {{"id", "e"}, {"name", "someone"}}; }

  json upsert(const json& variables) {
    auto inserted = run_.bucket.is_null();
    // Later requests contain only what has changed.
    for (auto& [name, value] : variables.items())
      if (!value.is_null() || !run_.bucket.contains(name))
        run_.bucket[name] = value;
    if (variables.contains("config") && variables["config"].is_string())
      run_.config = json::parse(variables["config"].get<std::string>());
    auto name = variables.value("name", "run");
    return {{"bucket",
             {{"id", "b"},
              {"name", name},
              {"displayName", name},
              {"config", "{}"},
              {"historyLineCount", 0},
              {"project", {{"id", "p"}, {"name", "p"}, {"entity", entity()}}}}},
            {"inserted", inserted}};
  }

  json resume_status() const {
    json bucket;
    if (!run_.bucket.is_null()) {
      auto tail = json::array();
      if (!run_.rows.empty())
        tail.push_back(run_.rows.back().dump());
      bucket = {{"id", "b"},
                {"name", run_.bucket.value("name", "run")},
                {"summaryMetrics", run_.summary.dump()},
                {"logLineCount", run_.output.size()},
                {"historyLineCount", run_.rows.size()},
                {"eventsLineCount", run_.stats.size()},
                {"historyTail", tail.dump()},
                {"eventsTail", "[]"},
                {"config", "{}"},
                {"tags", json::array()},
                {"wandbConfig", R"({"t":{}})"}};
    }
    return {
      {"id", "p"}, {"name", "p"}, {"entity", entity()}, {"bucket", bucket}};
  }

  json create_files(const json& variables) {
    json files = json::array();
    for (auto& x : variables.at("files"))
      files.push_back(
        {{"name", x}, {"uploadUrl", url() + "/put/" + x.get<std::string>()}});
    return {{"runID", "b"}, {"uploadHeaders", json::array()}, {"files", files}};
  }

  json file_stream(const json& body) {
    auto files = body.value("files", json::object());
    for (auto& [name, file] : files.items()) {
      auto content = file.value("content", std::vector<std::string>{});
      auto offset = file.value("offset", std::size_t{0});
      if (name == "wandb-history.jsonl") {
        run_.misplaced += offset > run_.rows.size();
        run_.rows.resize(std::max(run_.rows.size(), offset + content.size()));
        for (auto& line : content)
          run_.rows[offset++] = json::parse(line);
      } else if (name == "wandb-events.jsonl") {
        for (auto& line : content)
          run_.stats.push_back(json::parse(line));
      } else if (name == "wandb-summary.json") {
        run_.summary = json::parse(content.back());
      } else if (name == "output.log") {
        run_.output.resize(
          std::max(run_.output.size(), offset + content.size()));
        std::ranges::copy(content, run_.output.begin()
                                     + static_cast<std::ptrdiff_t>(offset));
      }
    }
    for (auto& x : body.value("uploaded", std::vector<std::string>{}))
      run_.files.push_back(x);
    if (body.value("complete", false)) {
      run_.complete = true;
      run_.exit_code = body.value("exitcode", -1);
    }
    return {{"exitcode", nullptr}, {"limits", json::object()}};
  }

  mutable std::mutex mutex_;
  mutable std::condition_variable arrived_;
  wandb_service_run run_;
  loopback_server server_;
};

} // namespace troupe::internal::test
