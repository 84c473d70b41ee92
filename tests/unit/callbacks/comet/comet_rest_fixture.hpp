#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <gtest/gtest.h>

#include "tests/support/loopback_server.hpp"
#include "tests/support/sink_records.hpp"
#include "troupe/callbacks/comet/comet_sink.hpp"

namespace troupe::internal::test {

/// A service that answers each call of one run as a test wants.
class comet_rest_test : public testing::Test {
protected:
  using json = nlohmann::json;

  std::vector<json> bodies(const std::string& call) const {
    std::vector<json> result;
    for (auto& x : server.requests())
      if (x.target == base + call)
        result.push_back(json::parse(x.body));
    return result;
  }

  using fault_type =
    std::function<std::optional<loopback_reply>(const loopback_request&)>;

  /// Sets what the server, on threads of its own, answers from now on.
  void set_fault(fault_type x) {
    std::lock_guard guard{fault_mutex};
    fault = std::move(x);
  }

  loopback_reply answer(const loopback_request& x) {
    std::lock_guard guard{fault_mutex};
    if (fault)
      if (auto reply = fault(x))
        return *reply;
    loopback_reply result;
    if (x.target == base + std::string{"create"})
      result.body = R"({"experimentKey":"made","link":"l"})";
    return result;
  }

  static constexpr auto secret = "planted0secret0planted0secret";
  static constexpr auto base = "/api/rest/v2/write/experiment/";

  temporary_folder folder;
  std::mutex fault_mutex;
  fault_type fault;
  loopback_server server{[this](auto& x) { return answer(x); }};
  environment_guard guard{
    {{"HOME", folder.path().string()},
     {"COMET_API_KEY", secret},
     {"COMET_URL_OVERRIDE", server.url() + "/clientlib/"}}};
  comet_options options{.workspace = "w", .project = "p", .tags = {"a", "b"}};
  sink_records record;
  tracked_run run = run_in(folder.path());
};

} // namespace troupe::internal::test
