#include "subject.hpp"
#include "troupe/trainers/torch/metrics/classification/confusion.hpp"
#include "troupe/trainers/torch/metrics/classification/counts.hpp"
#include "troupe/trainers/torch/metrics/classification/curves.hpp"
#include "troupe/trainers/torch/metrics/classification/log_loss.hpp"

namespace troupe::internal::test {

namespace {

using nlohmann::json;
using make_task = classification_task (*)(const json&);

std::optional<std::int64_t> ignored(const json& options) {
  if (options.contains("ignore_index"))
    return options.at("ignore_index").get<std::int64_t>();
  return std::nullopt;
}

classification_task binary(const json& options) {
  return binary_task{options.value("threshold", 0.5), ignored(options)};
}

classification_task multiclass(const json& options) {
  return multiclass_task{options.at("num_classes"),
                         options.value("top_k", std::int64_t{1}),
                         ignored(options)};
}

classification_task multilabel(const json& options) {
  return multilabel_task{options.at("num_labels"),
                         options.value("threshold", 0.5), ignored(options)};
}

/// The classes of torchmetrics are macro averages by default.
average averaging(const json& options) {
  static const std::map<std::string, average> names = {
    {"micro", average::micro},
    {"macro", average::macro},
    {"weighted", average::weighted},
    {"none", average::none}};
  return names.at(options.value("average", "macro"));
}

score_options scoring(const json& options) {
  return {averaging(options), options.value("zero_division", 0.0)};
}

curve_options curve(const json& options) {
  curve_options result{.average = averaging(options)};
  auto thresholds = options.value("thresholds", json{});
  if (thresholds.is_number())
    result.bins = thresholds;
  else if (thresholds.is_array())
    result.thresholds = thresholds.get<std::vector<double>>();
  return result;
}

normalization normalizing(const json& options) {
  static const std::map<std::string, normalization> names = {
    {"none", normalization::none},
    {"true", normalization::rows},
    {"pred", normalization::columns},
    {"all", normalization::all}};
  return names.at(options.value("normalize", "none"));
}

kappa_weights weighting(const json& options) {
  static const std::map<std::string, kappa_weights> names = {
    {"none", kappa_weights::none},
    {"linear", kappa_weights::linear},
    {"quadratic", kappa_weights::quadratic}};
  return names.at(options.value("weights", "none"));
}

std::optional<double> max_fpr(const json& options) {
  if (options.contains("max_fpr"))
    return options.at("max_fpr").get<double>();
  return std::nullopt;
}

/// What every task has, under names that begin with *prefix*.
void add(subject_factories& result, const std::string& prefix, make_task task) {
  auto put = [&](const std::string& name, auto make) {
    result[prefix + name] = [=](const json& options) {
      return subject_of(make(task(options), options));
    };
  };
  put("Accuracy", [](auto task, auto& options) {
    return accuracy{task, averaging(options)};
  });
  put("Precision", [](auto task, auto& options) {
    return precision{task, scoring(options)};
  });
  put("Recall", [](auto task, auto& options) {
    return recall{task, scoring(options)};
  });
  put("F1Score", [](auto task, auto& options) {
    return f1{task, scoring(options)};
  });
  put("FBetaScore", [](auto task, auto& options) {
    return f_beta{task, options.at("beta"), scoring(options)};
  });
  put("Specificity", [](auto task, auto& options) {
    return specificity{task, averaging(options)};
  });
  put("StatScores", [](auto task, auto& options) {
    return stat_scores{task, averaging(options)};
  });
  put("JaccardIndex", [](auto task, auto& options) {
    return jaccard{task, scoring(options)};
  });
  put("ExactMatch", [](auto task, auto&) { return exact_match{task}; });
  put("ConfusionMatrix", [](auto task, auto& options) {
    return confusion_matrix{task, normalizing(options)};
  });
  put("CohenKappa", [](auto task, auto& options) {
    return cohen_kappa{task, weighting(options)};
  });
  put("MatthewsCorrCoef",
      [](auto task, auto&) { return matthews_correlation{task}; });
  put("AUROC", [](auto task, auto& options) {
    return auroc{task, curve(options), max_fpr(options)};
  });
  put("AveragePrecision", [](auto task, auto& options) {
    return average_precision{task, curve(options)};
  });
}

} // namespace

subject_factories classification_subjects() {
  subject_factories result;
  add(result, "Binary", binary);
  add(result, "Multiclass", multiclass);
  add(result, "Multilabel", multilabel);
  result["Perplexity"] = [](const json& options) {
    return subject_of(perplexity{ignored(options)});
  };
  result["CrossEntropy"] = [](const json& options) {
    auto scores = options.value("probabilities", false)
                    ? score_kind::probabilities
                    : score_kind::logits;
    return subject_of(log_loss{{scores, ignored(options)}});
  };
  return result;
}

} // namespace troupe::internal::test
