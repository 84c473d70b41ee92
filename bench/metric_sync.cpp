#include <stdexcept>

#include <ATen/ATen.h>

#include "shared_numbers.hpp"
#include "takes.hpp"
#include "troupe/runtime/values/run_error.hpp"
#include "troupe/torch.hpp"

namespace troupe::internal::bench {

namespace {

constexpr std::int64_t samples = 1000; // of each rank

struct config {
  std::string counts;

  TROUPE_FIELDS(counts)
};

/// Twenty metrics with two outputs, one of which keeps a number per sample.
metric_collection twenty_metrics() {
  metric_collection result{mean_squared_error{{.num_outputs = 2}},
                           mean_squared_error{{false, 2}},
                           mean_absolute_error{2},
                           log_cosh_error{2},
                           mean_absolute_percentage_error{},
                           symmetric_mean_absolute_percentage_error{},
                           weighted_mean_absolute_percentage_error{},
                           mean_squared_log_error{},
                           relative_squared_error{},
                           relative_squared_error{false},
                           pearson_corr_coef{2},
                           r2_score{},
                           explained_variance{},
                           cosine_similarity{}};
  result.add(r2_score{{0, multioutput::raw_values}}, "r2_of_each");
  result.add(r2_score{{0, multioutput::variance_weighted}}, "r2_weighted");
  result.add(r2_score{{.adjusted = 2}}, "r2_adjusted");
  result.add(explained_variance{multioutput::raw_values}, "variance_of_each");
  result.add(cosine_similarity{similarity_reduction::mean}, "mean_cosine");
  result.add(cosine_similarity{similarity_reduction::none}, "cosines");
  if (result.size() != 20)
    throw std::logic_error{"not twenty metrics"};
  return result;
}

/// The collectives of all metrics at once, then of each metric alone.
void loop(train_context& context, const config& cfg) {
  auto group = data_plane(context)->group->getBackend(at::kCPU);
  auto together = twenty_metrics();
  auto apart = twenty_metrics();
  auto target = at::rand({samples, 2}, at::kDouble);
  auto preds = at::rand({samples, 2}, at::kDouble);
  together.update(preds, target);
  apart.update(preds, target);
  auto first = group->getSequenceNumberForGroup();
  auto values = together.compute();
  auto second = group->getSequenceNumberForGroup();
  for (auto& [key, value] : values)
    if (!apart.at(key).compute().equal(value))
      throw std::runtime_error{key + " has another value by itself"};
  auto third = group->getSequenceNumberForGroup();
  if (context.rank() == 0) {
    shared_numbers counts{cfg.counts, 2};
    counts[0] = static_cast<double>(second - first);
    counts[1] = static_cast<double>(third - second);
  }
}

} // namespace

figure metric_sync(workplace& place) {
  config cfg{place.new_path("counts")};
  shared_numbers counts{cfg.counts, 2};
  torch_trainer{loop,
                cfg,
                {.scaling = {.num_workers = 2},
                 .run = place.new_run(),
                 .torch = {.backend = backend::local}}}
    .fit()
    .value_or_throw();
  return {counts[0], counts[1]};
}

} // namespace troupe::internal::bench
