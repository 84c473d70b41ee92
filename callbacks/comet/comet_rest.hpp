#pragma once

#include "troupe/callbacks/comet/comet_backend.hpp"
#include "troupe/callbacks/comet/comet_settings.hpp"
#include "troupe/callbacks/comet/token_bucket.hpp"
#include "troupe/callbacks/http/http_client.hpp"

namespace troupe {

/// Speaks Comet's REST API, version 2, one call a message, within its limits.
class comet_rest final : public comet_backend {
public:
  comet_rest(comet_settings settings, std::vector<std::string> tags,
             const tracked_run& run);

  sink_result start(const std::string& state) override;
  sink_result send(std::span<const comet_message> messages) override;
  std::size_t room() override;
  sink_result finish(std::chrono::system_clock::time_point time) override;
  std::string state() const override { return key_; }

private:
  sink_result create();
  sink_result send(const comet_message& x);
  sink_result send_asset(const comet_message& x);
  sink_result post(const std::string& path, const std::string& body);
  sink_result get(const std::string& path);
  sink_result call(http_request request, http_reply* reply = nullptr);
  std::string key_field() const;

  comet_settings settings_;
  std::vector<std::string> tags_;
  std::int64_t start_ms_ = 0;
  std::stop_token stop_;
  std::string key_; ///< Empty: there is no experiment yet.
  http_client client_;
  token_bucket metric_calls_;
  token_bucket other_calls_;
};

} // namespace troupe
