#include "troupe/callbacks/comet/comet_rest.hpp"

#include "troupe/callbacks/encoding/percent.hpp"
#include "troupe/callbacks/http/http_client.hpp"
#include "troupe/callbacks/tracking/http_failure.hpp"
#include "troupe/runtime/process/secrets.hpp"
#include "troupe/runtime/storage/json.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/unix_time.hpp"

namespace troupe::internal {

namespace {

using failure_kind = sink_failure::kind;
using clock = std::chrono::steady_clock;

// Comet's limits, in calls per minute, less a tenth for other users of the key.
constexpr double metric_limit = 12'000 * 0.9;
constexpr double other_limit = 8'000 * 0.9;

constexpr auto hint = "check COMET_API_KEY (or api_key in ~/.comet.config), "
                      "COMET_WORKSPACE and COMET_PROJECT_NAME";

// Over a kept connection: a new one for each point would be slower than reports
// come. If it breaks before the reply, libcurl repeats the call. A point may
// then appear twice; all other values replace their predecessor.
http_request post_request(const std::string& path, std::string body) {
  http_request result;
  result.method = "POST";
  result.url = path;
  result.headers = {{"Content-Type", "application/json"}};
  result.body = std::move(body);
  return result;
}

// Whether *body* is HTML, as of a proxy that wants a login. What Comet answers
// to a call that it has carried out is not documented for all of them.
bool is_page(const std::string& body) {
  auto first = body.find_first_not_of(" \t\r\n");
  return first != body.npos && body[first] == '<';
}

sink_result too_fast(const token_bucket& bucket, double wanted) {
  sink_failure result;
  result.what = failure_kind::transient;
  result.reason = {ec::timeout, "Comet's limit of calls per minute is reached"};
  result.retry_after = bucket.until(wanted);
  return tl::unexpected{std::move(result)};
}

} // namespace

comet_rest::comet_rest(comet_settings settings, std::vector<std::string> tags,
                       const tracked_run& run)
  : settings_(std::move(settings)), tags_(std::move(tags)),
    start_ms_(unix_ms(run.start_time)), stop_(run.cancelled),
    metric_calls_(metric_limit), other_calls_(other_limit) {}

sink_result comet_rest::start(const std::string& state) {
  if (key_.empty())
    key_ =
      state.empty() && settings_.is_known ? settings_.experiment_key : state;
  if (key_.empty()) {
    TROUPE_TRY_VOID(create());
    due_tags_ = tags_;
  } else {
    TROUPE_TRY_VOID(reopen(key_));
  }
  return send_tags();
}

sink_result comet_rest::create() {
  json::ordered_document body{{"projectName", settings_.project},
                              {"experimentName", settings_.name},
                              {"experimentKey", settings_.experiment_key}};
  if (!settings_.workspace.empty())
    body["workspaceName"] = settings_.workspace;
  auto request = post_request("create", json::text_of(body));
  request.repeatable = false;
  http_reply reply;
  if (auto ok = call(std::move(request), &reply); !ok) {
    if (ok.error().what == failure_kind::transient)
      return ok;
    // Perhaps an earlier call made it, whose reply was lost: the key is the
    // run's own.
    if (!settings_.experiment_key.empty()) {
      auto found = reopen(settings_.experiment_key);
      if (found)
        key_ = settings_.experiment_key;
      if (found || found.error().what == failure_kind::transient)
        return found;
    }
    // Nothing can be sent without an experiment.
    ok.error().what = failure_kind::permanent;
    return ok;
  }
  auto created = json::parse(reply.body);
  auto found =
    created.is_object() ? created.find("experimentKey") : created.end();
  if (!created.is_object() || found == created.end() || !found->is_string())
    return sink_fails(failure_kind::transient,
                      {ec::protocol, "Comet's reply to create has no "
                                     "experimentKey"});
  key_ = found->get<std::string>();
  return {};
}

sink_result comet_rest::reopen(const std::string& key) {
  return get("set-status?experimentKey=" + percent_encoded(key));
}

sink_result comet_rest::send_tags() {
  // All in one call, or one by one if that is refused.
  for (auto count = due_tags_.size(); !due_tags_.empty();) {
    auto end = due_tags_.begin() + static_cast<std::ptrdiff_t>(count);
    auto sent =
      post("tags",
           json::text_of({{"experimentKey", key_},
                          {"addedTags", std::vector(due_tags_.begin(), end)}}));
    if (!sent && sent.error().what != failure_kind::rejected)
      return sent;
    if (!sent && std::exchange(count, 1) > 1)
      continue;
    if (!sent)
      notes_.push_back("Comet refuses the tag '" + due_tags_.front()
                       + "': " + sent.error().reason.message);
    due_tags_.erase(due_tags_.begin(), end);
  }
  return {};
}

std::size_t comet_rest::room(std::chrono::duration<double> span) {
  return static_cast<std::size_t>(metric_calls_.available(clock::now())
                                  + metric_calls_.refill(span));
}

sink_result comet_rest::send(std::span<const comet_message> messages) {
  for (std::size_t i = 0; i < messages.size(); ++i) {
    auto& bucket = messages[i].what == comet_message::kind::metric
                     ? metric_calls_
                     : other_calls_;
    auto done = bucket.take(clock::now())
                  ? send(messages[i])
                  : too_fast(bucket, double(messages.size() - i));
    if (!done) {
      done.error().accepted = i;
      return done;
    }
  }
  return {};
}

sink_result comet_rest::send(const comet_message& x) {
  json::ordered_document body{{"experimentKey", key_}};
  auto value = json::value_of(comet_value(x.value));
  switch (x.what) {
    case comet_message::kind::metric:
      body["metricName"] = x.name;
      body["metricValue"] = value;
      body["timestamp"] = x.time_ms;
      if (x.step)
        body["step"] = *x.step;
      return post("metric", json::text_of(body));
    case comet_message::kind::parameter:
      body["parameterName"] = x.name;
      body["parameterValue"] = value;
      return post("parameter", json::text_of(body));
    case comet_message::kind::other:
      body["key"] = x.name;
      body["value"] = value;
      return post("log-other", json::text_of(body));
    case comet_message::kind::asset:
      return send_asset(x);
  }
  return {};
}

sink_result comet_rest::send_asset(const comet_message& x) {
  auto name = x.name + (x.is_image ? ".png" : "");
  auto url = concat("upload-asset?experimentKey=", percent_encoded(key_),
                    "&fileName=", percent_encoded(name),
                    "&type=", x.is_image ? "image" : "asset");
  if (x.step)
    url += concat("&step=", *x.step);
  http_part part;
  part.name = "file";
  part.file = x.file;
  part.file_name = name;
  if (!x.file)
    part.data = to_string(x.value);
  http_request request;
  request.method = "POST";
  request.url = url;
  request.repeatable = false;
  request.form.push_back(std::move(part));
  auto sent = call(std::move(request));
  // Points must not wait for ever behind an asset, for which the key may have
  // no right or no room. If Comet answers other calls, it may be the reason.
  if (!sent && sent.error().what != failure_kind::rejected
      && sent.error().reason.code != ec::stopped && reopen(key_)) {
    sent.error().what = failure_kind::transient;
    sent.error().suspect = true;
    sent.error().reason.code = ec::storage; // It is not Comet that fails.
  }
  return sent;
}

sink_result comet_rest::finish(std::chrono::system_clock::time_point time) {
  TROUPE_TRY_VOID(post("set-start-end-time",
                       json::text_of({{"experimentKey", key_},
                                      {"startTimeMillis", start_ms_},
                                      {"endTimeMillis", unix_ms(time)}})));
  return get("stop?experimentKey=" + percent_encoded(key_));
}

sink_result comet_rest::post(const std::string& path, const std::string& body) {
  return call(post_request(path, body));
}

sink_result comet_rest::get(const std::string& path) {
  http_request request;
  request.url = path;
  return call(std::move(request));
}

sink_result comet_rest::call(http_request request, http_reply* reply) {
  request.url = settings_.url + "/api/rest/v2/write/experiment/" + request.url;
  request.headers.emplace_back("Authorization", settings_.api_key);
  auto result = client_.send(request, stop_);
  auto without_key = [&](sink_failure x) {
    x.reason.message = redacted(x.reason.message, settings_.api_key);
    return tl::unexpected{std::move(x)};
  };
  if (!result)
    return without_key(failure_of(request, result.error()));
  if (is_page(result->body) && result->ok()) {
    sink_failure page;
    page.reason = {ec::protocol,
                   shown_url(settings_.url)
                     + " answers with a page, not as Comet does: is "
                       "COMET_URL_OVERRIDE right?"};
    page.suspect = true;
    return without_key(std::move(page));
  }
  if (!result->ok()) {
    auto helps = result->status >= 400 && result->status < 405;
    auto author = json::parse(result->body).is_object() ? reply_author::service
                                                        : reply_author::unknown;
    return without_key(failure_of(request, *result, author, helps ? hint : ""));
  }
  if (reply)
    *reply = std::move(*result);
  return {};
}

} // namespace troupe::internal
