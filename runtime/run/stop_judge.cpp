#include "troupe/runtime/run/stop_judge.hpp"

#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/process/secrets.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe {

namespace internal {

stop_judge::stop_judge(stop_config config, report_judge other,
                       earlier_stop before)
  : config_(std::move(config)), other_(std::move(other)),
    reason_(std::move(before.reason)),
    is_unsaved_(!reason_.empty() && before.was_interrupted),
    seen_(config_.metrics.size()) {}

std::optional<std::string> stop_judge::begin(std::uint64_t reports) {
  return decide(reason_of(reports));
}

std::optional<std::string>
stop_judge::judge(const report_batch& x, std::chrono::milliseconds elapsed) {
  auto reason = reason_of(x, elapsed);
  // The other one sees each report.
  auto another = other_ ? other_(x) : std::nullopt;
  return decide(reason ? std::move(reason) : std::move(another));
}

std::optional<std::string> stop_judge::finish(const std::string& why) {
  return decide(why.empty() ? "the run was asked to finish" : why);
}

std::optional<std::string>
stop_judge::decide(std::optional<std::string> reason) {
  if (!reason || !reason_.empty())
    return std::nullopt;
  reason_ = redacted(*reason); // It may be a loop's.
  return reason_;
}

std::optional<std::string>
stop_judge::reason_of(const report_batch& x,
                      std::chrono::milliseconds elapsed) {
  std::optional<std::string> result;
  if (!x.stop_request.empty())
    result = x.stop_request;
  if (!x.values.empty() && !config_.metrics.empty()) {
    last_ = x.values.front();
    for (std::size_t i = 0; i < config_.metrics.size(); ++i) {
      auto& limit = config_.metrics[i];
      auto value = last_->find_number(limit.metric);
      seen_[i] = seen_[i] || value;
      if (!value || result)
        continue;
      // False for a NaN.
      auto is_met =
        limit.at_least ? *value >= *limit.at_least : *value <= *limit.at_most;
      if (is_met)
        result = concat("report ", x.index, ": ", limit.metric, " is ",
                        to_string(metric_value{*value}),
                        limit.at_least ? ", at least " : ", at most ",
                        to_string(metric_value{
                          limit.at_least ? *limit.at_least : *limit.at_most}));
    }
  }
  if (!result)
    result = reason_of(x.index + 1);
  if (!result && config_.time && elapsed >= *config_.time)
    result = concat("it ran for ", duration_text(elapsed),
                    "; run.stop.time is ", duration_text(*config_.time));
  return result;
}

std::optional<std::string> stop_judge::reason_of(std::uint64_t reports) const {
  if (!config_.reports || reports < *config_.reports)
    return std::nullopt;
  return concat("it has ", counted(reports, "report"), "; run.stop.reports is ",
                *config_.reports);
}

std::vector<std::string> stop_judge::complaints() const {
  std::vector<std::string> result;
  for (std::size_t i = 0; last_ && i < config_.metrics.size(); ++i)
    if (!seen_[i])
      result.push_back("run.stop.metrics names '" + config_.metrics[i].metric
                       + "', which no report of rank 0 had as a number; the "
                         "last one had: "
                       + (last_->unpacked().empty()
                            ? std::string{"nothing"}
                            : to_string(last_->unpacked())));
  return result;
}

} // namespace internal

} // namespace troupe
