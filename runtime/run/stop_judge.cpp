#include "troupe/runtime/run/stop_judge.hpp"

#include "troupe/runtime/text.hpp"

namespace troupe {

namespace internal {

std::optional<std::string>
stop_judge::judge(const report_batch& x, std::chrono::milliseconds elapsed) {
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
    result = judge(x.index + 1);
  if (!result && config_.time && elapsed >= *config_.time)
    result = concat("it ran for ", elapsed.count(), " ms; run.stop.time is ",
                    config_.time->count(), " ms");
  return result;
}

std::optional<std::string> stop_judge::judge(std::uint64_t reports) const {
  if (!config_.reports || reports < *config_.reports)
    return std::nullopt;
  return concat("it has ", reports, (reports == 1 ? " report" : " reports"),
                "; run.stop.reports is ", *config_.reports);
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
