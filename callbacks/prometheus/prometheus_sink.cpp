#include "troupe/callbacks/prometheus/prometheus_sink.hpp"

#include <arpa/inet.h>

#include "troupe/callbacks/prometheus/prometheus.hpp"
#include "troupe/callbacks/status_text.hpp"
#include "troupe/callbacks/tracking/option_fields.hpp"
#include "troupe/callbacks/tracking/tracker.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

prometheus_sink::prometheus_sink(prometheus_options options)
  : options_(std::move(options)) {}

std::string prometheus_sink::options() const {
  return options_json(options_);
}

expected<void> prometheus_sink::check(const tracked_run&) const {
  in_addr ignored{};
  if (::inet_pton(AF_INET, options_.address.c_str(), &ignored) == 1)
    return {};
  return failure(ec::invalid_config, "prometheus_options::address: '"
                                       + options_.address
                                       + "' is not an IPv4 address");
}

sink_result prometheus_sink::start(const tracked_run& run, const std::string&) {
  {
    std::lock_guard guard{mutex_};
    if (!gauges_ || run_.id != run.id)
      gauges_.emplace(run.name, options_.max_metrics, options_.ranks);
    run_ = run;
    ended_.reset();
    last_.reset();
  }
  if (server_)
    return {};
  auto server =
    page_server::start(options_.address, options_.port,
                       {"/metrics", std::string{prometheus_text::content_type},
                        [this] { return page(); }});
  // Another driver that is about to end may still hold the port.
  if (!server)
    return sink_fails(sink_failure::kind::transient, server.error());
  std::lock_guard guard{mutex_};
  server_ = std::move(*server);
  if (options_.port == 0)
    notes_.push_back("Prometheus finds the run at http://" + server_->address()
                     + "/metrics");
  return {};
}

sink_result prometheus_sink::log(std::span<const tracker_record> records) {
  std::lock_guard guard{mutex_};
  for (auto& x : records)
    gauges_->add(x);
  if (gauges_->left_out() > 0 && !std::exchange(warned_, true))
    notes_.push_back(concat("Prometheus gets only the first ",
                            options_.max_metrics,
                            " metrics (prometheus_options::max_metrics)"));
  return {};
}

sink_result prometheus_sink::finish(run_status_kind status,
                                    std::chrono::system_clock::time_point) {
  std::lock_guard guard{mutex_};
  ended_ = std::chrono::steady_clock::now();
  if (run_.status)
    last_ = run_.status();
  else
    last_.emplace();
  last_->state = end_state_of(status);
  run_.status = nullptr;
  return {};
}

std::string prometheus_sink::page() const {
  std::lock_guard guard{mutex_};
  auto now = last_;
  if (run_.status && !run_.cancelled.stop_requested())
    now = run_.status();
  auto stale =
    ended_ && std::chrono::steady_clock::now() - *ended_ >= options_.grace;
  prometheus_text out;
  gauges_->write(out, now, !stale);
  return out.text();
}

} // namespace troupe::internal

namespace troupe {

std::shared_ptr<tracker> prometheus_tracker(prometheus_options options,
                                            tracker_options tracking) {
  // What another run's page keeps out is worth nothing after the run.
  if (!tracking.failing_timeout)
    tracking.failing_timeout = std::chrono::seconds{2};
  return internal::make_tracker<internal::prometheus_sink>(std::move(options),
                                                           tracking);
}

} // namespace troupe
