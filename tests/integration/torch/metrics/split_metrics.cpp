#include "split_metrics.hpp"

#include <torch/torch.h>

#include "troupe/torch.hpp"

namespace troupe::internal::test {

namespace {

constexpr long samples = 23;

at::Generator generator() {
  return at::make_generator<at::CPUGeneratorImpl>(4);
}

/// Predictions and targets, a row for each sample.
struct pairs {
  at::Tensor preds;
  at::Tensor target;
};

pairs regression(std::vector<std::int64_t> row = {}) {
  auto shape = row;
  shape.insert(shape.begin(), samples);
  auto random = generator();
  auto target = torch::randn(shape, random, torch::kDouble) + 3;
  return {target + 0.3 * torch::randn(shape, random, torch::kDouble), target};
}

/// Probabilities of four classes with some ties, and labels without the last.
pairs classes(std::vector<std::int64_t> row = {}) {
  auto random = generator();
  std::vector<std::int64_t> shape{samples, 4}, labels{samples};
  shape.insert(shape.end(), row.begin(), row.end());
  labels.insert(labels.end(), row.begin(), row.end());
  auto scores = torch::randint(1, 9, shape, random, torch::kDouble);
  return {scores / scores.sum(1, true),
          torch::randint(3, labels, random, torch::kLong)};
}

pairs flags(std::vector<std::int64_t> row = {}) {
  auto random = generator();
  row.insert(row.begin(), samples);
  return {torch::randint(0, 11, row, random, torch::kDouble) / 10,
          torch::randint(2, row, random, torch::kLong)};
}

at::Tensor rows(const at::Tensor& x, slice which) {
  return x.slice(0, which.begin, which.end);
}

/// *fresh*, over *plane* if there is one, updated by *update(metric, slice)*.
template <class Metric, class Update>
split_metric type_erased(Metric fresh, std::optional<torch_data_plane> plane,
                         Update update) {
  auto metric = std::make_shared<Metric>(std::move(fresh));
  if (plane)
    metric->synchronize_over(*plane);
  return {[metric, update](slice x) { update(*metric, x); },
          [metric] { return std::vector<at::Tensor>{metric->compute()}; },
          [metric] { return metric->state(); }};
}

template <class Metric>
splittable of(Metric fresh, pairs data, std::string more = {}) {
  auto update = [data](Metric& metric, slice x) {
    metric.update(rows(data.preds, x), rows(data.target, x));
  };
  return {fresh.name() + more, data.preds.size(0), [fresh, update](auto plane) {
            return type_erased(fresh, plane, update);
          }};
}

template <class Metric>
splittable of(Metric fresh, std::string more = {}) {
  auto data = regression().preds;
  auto update = [data](Metric& metric, slice x) {
    metric.update(rows(data, x));
  };
  return {fresh.name() + more, data.size(0), [fresh, update](auto plane) {
            return type_erased(fresh, plane, update);
          }};
}

splittable weighted_mean() {
  auto data = regression();
  auto update = [data](mean_metric& metric, slice x) {
    metric.update(rows(data.preds, x), rows(data.target, x));
  };
  return {"weighted_mean", samples, [update](auto plane) {
            return type_erased(mean_metric{}, plane, update);
          }};
}

template <class Make>
splittable collection(std::string name, Make make, pairs data) {
  return {
    std::move(name), samples, [make, data](auto plane) {
      auto all = std::make_shared<metric_collection>(make());
      if (plane)
        all->synchronize_over(*plane);
      auto update = [all, data](slice x) {
        all->update(rows(data.preds, x), rows(data.target, x));
      };
      auto compute = [all] {
        std::vector<at::Tensor> result;
        for (auto& [key, x] : all->compute())
          result.push_back(x);
        return result;
      };
      return split_metric{update, compute, [all] { return all->state(); }};
    }};
}

metric_collection regressions() {
  return metric_collection{mean_squared_error{},
                           mean_squared_error{{.squared = false}},
                           mean_absolute_percentage_error{},
                           r2_score{},
                           explained_variance{},
                           pearson_corr_coef{}};
}

metric_collection classifications() {
  multiclass_task four{.num_classes = 4};
  return metric_collection{
    accuracy{four}, precision{four},         recall{four},
    auroc{four},    average_precision{four}, confusion_matrix{four}};
}

void add_aggregators(std::vector<splittable>& x) {
  x.push_back(of(mean_metric{}));
  x.push_back(of(sum_metric{}));
  x.push_back(of(min_metric{}));
  x.push_back(of(max_metric{}));
  x.push_back(of(cat_metric{}));
  x.push_back(of(running_mean{samples + 3}));
  x.push_back(weighted_mean());
}

void add_regression(std::vector<splittable>& x) {
  auto plain = regression(), two = regression({2});
  pairs positive{plain.preds.abs(), plain.target.abs()};
  x.push_back(of(mean_squared_error{}, plain));
  x.push_back(of(mean_squared_error{{.squared = false, .num_outputs = 2}}, two,
                 "_of_two"));
  x.push_back(of(mean_absolute_error{2}, two));
  x.push_back(of(mean_absolute_percentage_error{}, plain));
  x.push_back(of(symmetric_mean_absolute_percentage_error{}, plain));
  x.push_back(of(weighted_mean_absolute_percentage_error{}, plain));
  x.push_back(of(mean_squared_log_error{}, positive));
  x.push_back(of(log_cosh_error{}, plain));
  x.push_back(of(relative_squared_error{}, two));
  x.push_back(of(r2_score{{.adjusted = 2}}, plain, "_adjusted"));
  x.push_back(of(r2_score{{.multioutput = multioutput::raw_values}}, two));
  x.push_back(of(explained_variance{multioutput::variance_weighted}, two));
  x.push_back(of(pearson_corr_coef{}, plain));
  x.push_back(of(pearson_corr_coef{2}, two, "_of_two"));
  x.push_back(of(cosine_similarity{}, two));
  x.push_back(of(cosine_similarity{similarity_reduction::mean}, two, "_mean"));
  x.push_back(of(cosine_similarity{similarity_reduction::none}, two, "_each"));
}

void add_classification(std::vector<splittable>& x) {
  const std::vector<std::tuple<classification_task, pairs, std::string>> tasks{
    {binary_task{}, flags(), "_binary"},
    {multiclass_task{.num_classes = 4}, classes(), "_multiclass"},
    {multilabel_task{.num_labels = 3}, flags({3}), "_multilabel"}};
  for (auto& [task, data, name] : tasks) {
    x.push_back(of(accuracy{task, average::macro}, data, name));
    x.push_back(of(precision{task}, data, name));
    x.push_back(of(recall{task}, data, name));
    x.push_back(of(f1{task}, data, name));
    x.push_back(of(f_beta{task, 2.0}, data, name));
    x.push_back(of(specificity{task}, data, name));
    x.push_back(of(jaccard{task}, data, name));
    x.push_back(of(stat_scores{task}, data, name));
    x.push_back(of(confusion_matrix{task}, data, name));
    x.push_back(of(matthews_correlation{task}, data, name));
    x.push_back(of(auroc{task}, data, name));
    x.push_back(of(auroc{task, {.bins = 7}}, data, name + "_binned"));
    x.push_back(of(average_precision{task}, data, name));
    x.push_back(
      of(average_precision{task, {.bins = 7}}, data, name + "_binned"));
  }
  multiclass_task four{.num_classes = 4};
  x.push_back(of(accuracy{multiclass_task{.num_classes = 4, .top_k = 2}},
                 classes(), "_of_top_two"));
  x.push_back(of(cohen_kappa{four}, classes()));
  x.push_back(of(exact_match{four}, classes({2})));
  x.push_back(of(log_loss{{.scores = score_kind::probabilities}}, classes()));
  auto random = generator();
  x.push_back(
    of(perplexity{}, {torch::randn({samples, 5, 6}, random, torch::kDouble),
                      torch::randint(6, {samples, 5}, random, torch::kLong)}));
}

} // namespace

std::vector<splittable> all_splittable() {
  std::vector<splittable> result;
  add_aggregators(result);
  add_regression(result);
  add_classification(result);
  result.push_back(
    collection("collection_of_errors", regressions, regression()));
  result.push_back(
    collection("collection_of_scores", classifications, classes()));
  return result;
}

} // namespace troupe::internal::test
