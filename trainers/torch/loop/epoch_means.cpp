#include "troupe/trainers/torch/loop/epoch_means.hpp"

#include <algorithm>

#include <ATen/Functions.h>

#include "troupe/trainers/torch/collectives.hpp"
#include "troupe/trainers/torch/data_plane.hpp"
#include "troupe/trainers/torch/refuse.hpp"

namespace troupe {

void epoch_means::add(const std::string& name, const at::Tensor& value,
                      double weight, bool over_ranks) {
  auto addend = value.detach().to(at::kDouble).reshape({}) * weight;
  auto [i, is_new] = entries_.try_emplace(name);
  auto& known = i->second;
  if (is_new)
    known = {addend, 0, over_ranks};
  else if (known.over_ranks != over_ranks)
    refuse("'" + name + "' is logged both with and without sync_dist");
  else
    known.sum += addend.to(known.sum.device());
  known.weight += weight;
}

std::vector<std::string>
epoch_means::shared_names(train_context& context) const {
  std::vector<std::string> mine;
  for (auto& [name, x] : entries_)
    if (x.over_ranks)
      mine.push_back(name);
  if (context.world_size() == 1)
    return mine;
  auto names = context.broadcast_from_rank_zero(mine);
  for (auto& name : mine)
    if (!std::binary_search(names.begin(), names.end(), name))
      refuse("rank " + std::to_string(context.rank()) + " logged '" + name
             + "' with sync_dist in an epoch in which rank 0 did not log it");
  return names;
}

std::map<std::string, double> epoch_means::means(train_context& context) const {
  auto names = shared_names(context);
  const auto shared = static_cast<std::int64_t>(names.size());
  for (auto& [name, x] : entries_)
    if (!x.over_ranks)
      names.push_back(name);
  if (names.empty())
    return {};
  const auto on_device =
    at::TensorOptions{}.dtype(at::kDouble).device(device(context));
  std::vector<at::Tensor> sums;
  std::vector<double> weights;
  for (auto& name : names) {
    auto i = entries_.find(name);
    auto missing = i == entries_.end();
    sums.push_back(missing ? at::zeros({}, on_device)
                           : i->second.sum.to(on_device.device()));
    weights.push_back(missing ? 0 : i->second.weight);
  }
  auto table =
    at::stack({at::stack(sums), at::tensor(weights).to(on_device)}, 1);
  if (shared > 0)
    all_reduce_sum(context, table.narrow(0, 0, shared));
  table = table.to(at::kCPU);
  std::map<std::string, double> result;
  for (std::size_t i = 0; i < names.size(); ++i) {
    auto* row = table.const_data_ptr<double>() + 2 * i;
    result[names[i]] = row[0] / row[1];
  }
  return result;
}

} // namespace troupe
