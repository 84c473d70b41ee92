#include "troupe/callbacks/mlflow/describe_mlflow_run.hpp"

#include <nlohmann/json.hpp>

#include "troupe/callbacks/mlflow/mlflow_names.hpp"
#include "troupe/callbacks/mlflow/mlflow_text.hpp"
#include "troupe/callbacks/tracking/given_settings.hpp"
#include "troupe/callbacks/tracking/sink.hpp"

namespace troupe {

namespace {

using json = nlohmann::json;

/// Longest name of an experiment.
constexpr std::size_t max_experiment_name = 500;

std::string name_of(const mlflow_options& options, const tracked_run& run) {
  return first_of(options.run_name, run.display_name,
                  variable("MLFLOW_RUN_NAME"), run.name);
}

std::vector<mlflow_pair> tags_of(const mlflow_options& options,
                                 const tracked_run& run) {
  static const std::map<std::string, std::string> of_mlflow{
    {"user", "mlflow.user"},
    {"program", "mlflow.source.name"},
    {"git_commit", "mlflow.source.git.commit"},
    {"host", "troupe.host"}};
  std::map<std::string, std::string> tags{
    {"mlflow.source.type", "LOCAL"},
    {"troupe.run_uid", run.id},
    {"troupe.attempt", std::to_string(run.attempt)}};
  for (const auto& [key, value] : run.tags) {
    auto i = of_mlflow.find(key);
    tags[i == of_mlflow.end() ? key : i->second] = value;
  }
  auto environment = json::parse(variable("MLFLOW_TAGS"), nullptr, false);
  if (environment.is_object())
    for (const auto& [key, value] : environment.items())
      tags[key] = value.is_string() ? value.get<std::string>() : value.dump();
  for (const auto& [key, value] : options.tags)
    tags[key] = value;
  tags["mlflow.runName"] = name_of(options, run);
  std::vector<mlflow_pair> result;
  for (const auto& [key, value] : tags)
    if (!value.empty())
      result.push_back(
        {clean_mlflow_name(key), cut_text(mlflow_text(value), max_mlflow_tag)});
  return result;
}

} // namespace

mlflow_run describe_mlflow_run(const mlflow_options& options,
                               const tracked_run& run) {
  mlflow_run result;
  result.experiment_id = options.experiment_id;
  result.experiment = first_of(options.experiment, run.experiment, run.project);
  if (result.experiment.empty() && result.experiment_id.empty())
    result.experiment_id = variable("MLFLOW_EXPERIMENT_ID");
  if (result.experiment.empty())
    result.experiment =
      first_of(variable("MLFLOW_EXPERIMENT_NAME"), std::string{"Default"});
  result.experiment = cut_text(result.experiment, max_experiment_name, "");
  result.name = name_of(options, run);
  result.uid = run.id;
  result.run_id = first_of(options.run_id, variable("MLFLOW_RUN_ID"));
  result.start_ms = unix_ms(run.start_time);
  result.tags = tags_of(options, run);
  if (auto user = run.tags.find("user"); user != run.tags.end())
    result.user = user->second;
  return result;
}

} // namespace troupe
