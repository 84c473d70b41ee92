#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "troupe/callbacks/comet/comet_message.hpp"
#include "troupe/callbacks/comet/comet_settings.hpp"
#include "troupe/callbacks/http/http_client.hpp"

namespace troupe::internal {

/// Limits the calls per minute. The bucket holds a quarter of a minute's calls,
/// so that a burst after a pause stays within the limit, too.
class token_bucket {
public:
  using clock = std::chrono::steady_clock;

  explicit token_bucket(double per_minute)
    : rate_(per_minute / 60), size_(per_minute / 4), tokens_(size_) {}

  /// Takes one token. Returns false if there is none.
  bool take(clock::time_point now) {
    if (available(now) < 1)
      return false;
    --tokens_;
    return true;
  }

  /// How many calls may be made in *span*, once the bucket is empty; none if
  /// *span* is negative.
  double refill(std::chrono::duration<double> span) const {
    return std::max(0.0, rate_ * span.count());
  }

  /// How many calls may be made at once.
  double available(clock::time_point now) {
    if (last_ && now > *last_)
      tokens_ = std::min(size_, tokens_ + refill(now - *last_));
    last_ = now;
    return tokens_;
  }

  /// Time until *count* calls may be made at once, in whole seconds, at least
  /// one.
  std::chrono::seconds until(double count) const {
    auto missing = std::min(count, size_) - tokens_;
    return std::chrono::ceil<std::chrono::seconds>(
      std::chrono::duration<double>(std::max(missing / rate_, 1.0)));
  }

private:
  double rate_;
  double size_;
  double tokens_;
  std::optional<clock::time_point> last_;
};

/// Sends messages through Comet's REST API, version 2, one call for each,
/// within the API's limits.
class comet_rest final : public comet_backend {
public:
  comet_rest(comet_settings settings, std::vector<std::string> tags,
             const tracked_run& run);

  sink_result start(const std::string& state) override;
  std::vector<std::string> take_notes() override {
    return std::exchange(notes_, {});
  }
  sink_result send(std::span<const comet_message> messages) override;
  std::size_t room(std::chrono::duration<double> span) override;
  sink_result finish(std::chrono::system_clock::time_point time) override;
  std::string state() const override { return key_; }

private:
  sink_result create();
  /// Marks the experiment *key* as running again.
  sink_result reopen(const std::string& key);
  /// Those that are due. One that Comet refuses becomes a note.
  sink_result send_tags();
  sink_result send(const comet_message& x);
  sink_result send_asset(const comet_message& x);
  sink_result post(const std::string& path, const std::string& body);
  sink_result get(const std::string& path);
  sink_result call(http_request request, http_reply* reply = nullptr);

  comet_settings settings_;
  std::vector<std::string> tags_;
  std::int64_t start_ms_ = 0;
  std::stop_token stop_;
  std::string key_;                   ///< Of the experiment; empty: none yet.
  std::vector<std::string> due_tags_; ///< Of a new one: not answered yet.
  std::vector<std::string> notes_;
  http_client client_;
  token_bucket metric_calls_;
  token_bucket other_calls_;
};

} // namespace troupe::internal
