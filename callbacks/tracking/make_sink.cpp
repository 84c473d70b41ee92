#include "troupe/callbacks/tracking/make_sink.hpp"

#include <exception>
#include <map>
#include <string_view>

#include "troupe/callbacks/comet/comet_sink.hpp"
#include "troupe/callbacks/csv/csv_sink.hpp"
#include "troupe/callbacks/json_lines/result_json_sink.hpp"
#include "troupe/callbacks/mlflow/mlflow_sink.hpp"
#include "troupe/callbacks/prometheus/prometheus_sink.hpp"
#include "troupe/callbacks/report_page/report_page_sink.hpp"
#include "troupe/callbacks/tensorboard/tensorboard_sink.hpp"
#include "troupe/callbacks/wandb/wandb_sink.hpp"

namespace troupe {

namespace {

using maker = std::unique_ptr<sink> (*)(const std::string&);

const std::map<std::string_view, maker>& makers() {
  static const std::map<std::string_view, maker> result{
    {"comet", make_comet_sink},
    {"csv", make_csv_sink},
    {"mlflow", make_mlflow_sink},
    {"prometheus", make_prometheus_sink},
    {"report_page", make_report_page_sink},
    {"result_json", make_result_json_sink},
    {"tensorboard", make_tensorboard_sink},
    {"wandb", make_wandb_sink},
  };
  return result;
}

} // namespace

expected<std::unique_ptr<sink>> make_sink(const std::string& name,
                                          const std::string& options) {
  auto found = makers().find(name);
  if (found == makers().end())
    return failure(ec::unsupported, "there is no tracker called " + name);
  try {
    return found->second(options);
  } catch (const std::exception& x) {
    return failure(ec::unsupported, "the options of tracker " + name
                                      + " cannot be read: " + x.what());
  }
}

} // namespace troupe
