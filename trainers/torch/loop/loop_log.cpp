#include "troupe/trainers/torch/loop/loop_log.hpp"

#include <cstring>
#include <sstream>
#include <utility>

#include <ATen/Functions.h>
#include <c10/util/StringUtil.h>
#include <cereal/archives/portable_binary.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>

#include "troupe/trainers/torch/collectives.hpp"
#include "troupe/trainers/torch/groups/data_plane.hpp"
#include "troupe/trainers/torch/throw_invalid_argument.hpp"

namespace troupe {

using namespace internal;

namespace {

/// The names that any rank has, sorted. A collective.
std::vector<std::string>
names_of_all_ranks(train_context& context,
                   const std::vector<std::string>& mine) {
  std::ostringstream out;
  cereal::PortableBinaryOutputArchive{out}(mine);
  auto text = std::move(out).str();
  auto bytes = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  std::set<std::string> result;
  for (auto& x : all_gather(context, bytes)) {
    std::istringstream in{
      std::string{static_cast<const char*>(x.const_data_ptr()),
                  static_cast<std::size_t>(x.numel())}};
    std::vector<std::string> names;
    cereal::PortableBinaryInputArchive{in}(names);
    result.insert(names.begin(), names.end());
  }
  return {result.begin(), result.end()};
}

} // namespace

void epoch_means::add(const std::string& name, const at::Tensor& value,
                      double weight, bool over_ranks) {
  auto addend = value.detach().to(at::kDouble).reshape({}) * weight;
  auto [i, is_new] = entries_.try_emplace(name);
  auto& known = i->second;
  if (is_new)
    known = {addend, 0, over_ranks};
  else if (known.over_ranks != over_ranks)
    throw_invalid_argument("'" + name
                           + "' is logged both with and without sync_dist");
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
  auto names = names_of_all_ranks(context, mine);
  for (auto& name : names)
    if (auto i = entries_.find(name);
        i != entries_.end() && !i->second.over_ranks)
      throw_invalid_argument("rank ", context.rank(), " logged '", name,
                             "' without sync_dist, but another rank with it");
  return names;
}

std::map<std::string, double> epoch_means::means(train_context& context) const {
  auto names = shared_names(context);
  auto shared = static_cast<std::int64_t>(names.size());
  for (auto& [name, x] : entries_)
    if (!x.over_ranks)
      names.push_back(name);
  if (names.empty())
    return {};
  auto on_device =
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
    all_reduce(context, table.narrow(0, 0, shared));
  table = table.to(at::kCPU);
  std::map<std::string, double> result;
  for (std::size_t i = 0; i < names.size(); ++i) {
    auto* row = table.const_data_ptr<double>() + 2 * i;
    result[names[i]] = row[0] / row[1];
  }
  return result;
}

namespace {

at::Tensor mean_over_ranks(train_context& context, const at::Tensor& x) {
  auto mine = x.to(device(context), at::kDouble, /*non_blocking=*/false,
                   /*copy=*/true);
  return all_reduce(context, mine, reduce_op::mean);
}

} // namespace

void loop_log::begin_training() {
  training_.clear();
  of_epoch_.clear();
  validating_ = false;
  place_ = place::epoch;
}

void loop_log::begin_validation() {
  validation_.clear();
  validating_ = true;
  place_ = place::epoch;
}

void loop_log::begin_batch(std::int64_t samples) {
  samples_ = samples;
  place_ = place::batch;
}

void loop_log::end_batch() {
  samples_ = 1;
  place_ = place::epoch;
}

void loop_log::end_epoch(train_context& context) {
  for (auto& [name, mean] : means().means(context)) {
    auto value = at::scalar_tensor(mean, at::kDouble);
    keep(name, value);
    if (twofold_.count(name))
      keep(name + "_epoch", value);
  }
  place_ = place::epoch_end;
}

void loop_log::end_validation(bool is_training) {
  validating_ = false;
  place_ = is_training ? place::epoch : place::outside;
}

void loop_log::add(train_context& context, const std::string& name,
                   const at::Tensor& value, const log_options& options) {
  if (name.empty())
    throw_invalid_argument("a value is logged without a name");
  if (place_ == place::outside)
    throw_invalid_argument(
      "'" + name
      + "' is logged outside of the epochs of a fit, where no mean or "
        "report would ever hold it");
  if (!value.defined() || value.numel() != 1)
    throw_invalid_argument("'" + name + "' is logged with "
                           + (value.defined()
                                ? c10::str(value.numel(), " elements")
                                : std::string{"an undefined tensor"})
                           + ", but a logged value is one number");
  auto in_batch = place_ == place::batch && !validating_;
  auto at_end = place_ == place::epoch_end;
  auto on_step = options.on_step.value_or(in_batch) || at_end;
  auto on_epoch = options.on_epoch.value_or(!in_batch) && !at_end;
  if (on_step) {
    auto now = options.sync_dist
                 ? mean_over_ranks(context, value.detach())
                 : value.detach().to(at::kDouble).reshape({}).clone();
    keep(name, now);
    if (on_epoch) {
      keep(name + "_step", now);
      twofold_.insert(name);
    }
  }
  if (on_epoch) {
    auto weight = options.batch_size.value_or(samples_);
    if (weight < 0)
      throw_invalid_argument("'", name, "' is logged with a batch size of ",
                             weight);
    means().add(name, value, static_cast<double>(weight), options.sync_dist);
  }
}

metrics loop_log::values() const {
  metrics result;
  for (auto& [name, value] : values_)
    result[name] = value.item().toDouble();
  return result;
}

metrics loop_log::values_of_epoch() const {
  metrics result;
  for (auto& name : of_epoch_)
    result[name] = values_.at(name).item().toDouble();
  return result;
}

void loop_log::restore(const metrics& values) {
  for (auto& [name, value] : values)
    keep(name, at::scalar_tensor(value.number(), at::kDouble));
}

} // namespace troupe
