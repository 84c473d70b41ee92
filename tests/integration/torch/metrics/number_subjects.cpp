#include "subject.hpp"
#include "troupe/trainers/torch/metrics/aggregation.hpp"
#include "troupe/trainers/torch/metrics/regression/errors.hpp"
#include "troupe/trainers/torch/metrics/regression/moments.hpp"

namespace troupe::internal::test {

namespace {

using nlohmann::json;

nan_strategy nans(const json& options) {
  static const std::map<std::string, on_nan> names = {
    {"warn", on_nan::warn},
    {"ignore", on_nan::ignore},
    {"error", on_nan::error},
    {"disable", on_nan::disable}};
  auto strategy = options.value("nan_strategy", json("warn"));
  if (strategy.is_number())
    return strategy.get<double>();
  return names.at(strategy);
}

std::int64_t outputs(const json& options) {
  return options.value("num_outputs", std::int64_t{1});
}

multioutput combining(const json& options) {
  static const std::map<std::string, multioutput> names = {
    {"raw_values", multioutput::raw_values},
    {"uniform_average", multioutput::uniform_average},
    {"variance_weighted", multioutput::variance_weighted}};
  return names.at(options.value("multioutput", "uniform_average"));
}

similarity_reduction reducing(const json& options) {
  static const std::map<std::string, similarity_reduction> names = {
    {"sum", similarity_reduction::sum},
    {"mean", similarity_reduction::mean},
    {"none", similarity_reduction::none}};
  return names.at(options.value("reduction", "sum"));
}

template <class Metric>
subject aggregating(const json& options) {
  return subject_of(Metric{nans(options)});
}

template <class Metric>
subject without_options(const json&) {
  return subject_of(Metric{});
}

} // namespace

subject_factories number_subjects() {
  return {
    {"MeanMetric", aggregating<mean_metric>},
    {"SumMetric", aggregating<sum_metric>},
    {"MaxMetric", aggregating<max_metric>},
    {"MinMetric", aggregating<min_metric>},
    {"CatMetric", aggregating<cat_metric>},
    {"RunningMean",
     [](auto& x) {
       auto result = subject_of(running_mean{x.at("window")});
       result.merged = nullptr; // Each metric keeps a window of its own.
       return result;
     }},
    {"MeanSquaredError",
     [](auto& x) {
       return subject_of(
         mean_squared_error{{x.value("squared", true), outputs(x)}});
     }},
    {"MeanAbsoluteError",
     [](auto& x) { return subject_of(mean_absolute_error{outputs(x)}); }},
    {"MeanAbsolutePercentageError",
     without_options<mean_absolute_percentage_error>},
    {"SymmetricMeanAbsolutePercentageError",
     without_options<symmetric_mean_absolute_percentage_error>},
    {"WeightedMeanAbsolutePercentageError",
     without_options<weighted_mean_absolute_percentage_error>},
    {"MeanSquaredLogError", without_options<mean_squared_log_error>},
    {"LogCoshError",
     [](auto& x) { return subject_of(log_cosh_error{outputs(x)}); }},
    {"R2Score",
     [](auto& x) {
       return subject_of(
         r2_score{{x.value("adjusted", std::int64_t{0}), combining(x)}});
     }},
    {"ExplainedVariance",
     [](auto& x) { return subject_of(explained_variance{combining(x)}); }},
    {"RelativeSquaredError",
     [](auto& x) {
       return subject_of(relative_squared_error{x.value("squared", true)});
     }},
    {"PearsonCorrCoef",
     [](auto& x) { return subject_of(pearson_corr_coef{outputs(x)}); }},
    {"CosineSimilarity",
     [](auto& x) { return subject_of(cosine_similarity{reducing(x)}); }},
  };
}

} // namespace troupe::internal::test
