#include "troupe/trainers/torch/metrics/metric_collection.hpp"

#include <algorithm>
#include <map>

#include <ATen/ATen.h>

#include "troupe/runtime/text.hpp"
#include "troupe/trainers/torch/metrics/metric_synchronization.hpp"

namespace troupe {

using namespace internal;

void metric_collection::update(const at::Tensor& preds,
                               const at::Tensor& target) {
  for (auto& x : members_)
    if (x.leads)
      x.value->update(preds, target);
}

tensor_map metric_collection::forward(const at::Tensor& preds,
                                      const at::Tensor& target) {
  std::vector<std::unique_ptr<metric::batch_guard>> guards;
  for (auto& x : members_)
    if (x.leads)
      guards.push_back(std::make_unique<metric::batch_guard>(*x.value));
  update(preds, target);
  std::vector<at::Tensor> values;
  for (auto& x : members_)
    values.push_back(x.value->own_result());
  for (auto& guard : guards)
    guard->commit();
  return named(values);
}

tensor_map metric_collection::compute() {
  std::vector<metric*> all;
  for (auto& x : members_)
    all.push_back(x.value.get());
  return named(metric_synchronization{std::move(all), plane_}.values());
}

metrics metric_collection::values() {
  metrics result;
  auto put = [&](const std::string& key, const at::Tensor& x) {
    if (x.is_floating_point())
      result[key] = x.item<double>();
    else
      result[key] = x.item<std::int64_t>();
  };
  for (auto& [key, x] : compute()) {
    auto flat = x.to(at::kCPU).flatten();
    if (x.dim() == 0)
      put(key, x);
    else
      for (std::int64_t i = 0; i < flat.numel(); ++i)
        put(concat(key, '/', i), flat[i]);
  }
  return result;
}

void metric_collection::reset() {
  for (auto& x : members_)
    x.value->reset();
}

std::int64_t metric_collection::updates() const noexcept {
  std::int64_t result = 0;
  for (auto& x : members_)
    result = std::max(result, x.value->updates());
  return result;
}

tensor_map metric_collection::state() const {
  tensor_map result;
  for (auto& member : members_)
    for (auto& [name, x] : member.value->state())
      result.emplace(member.key + '/' + name, x);
  return result;
}

void metric_collection::load_state(const tensor_map& x) {
  std::map<std::string, tensor_map> of_members;
  for (auto& [name, tensor] : x) {
    // Keys may contain slashes, names of states do not.
    auto slash = std::min(name.rfind('/'), name.size());
    auto key = name.substr(0, slash);
    at(key); // Throws if the key is unknown.
    of_members[key].emplace(name.substr(slash + 1), tensor);
  }
  for (auto& member : members_)
    member.value->load_state(of_members[member.key]);
}

void metric_collection::synchronize_over(torch_data_plane plane) {
  for (auto& x : members_)
    x.value->synchronize_over(plane);
  plane_ = std::move(plane);
}

prediction_metric& metric_collection::at(const std::string& key) {
  for (auto& x : members_)
    if (x.key == key)
      return *x.value;
  refuse_metric("collection", "has no metric '", key, "'");
}

void metric_collection::insert(std::unique_ptr<prediction_metric> x,
                               std::string key) {
  if (key.empty())
    key = x->name();
  auto seen = x->updates() > 0;
  auto leader = members_.end();
  for (auto i = members_.begin(); i != members_.end(); ++i) {
    if (i->key == key)
      refuse_metric("collection", "already has a metric '", key, "'");
    seen = seen || i->value->updates() > 0;
    if (i->leads && !x->state_key().empty()
        && i->value->state_key() == x->state_key())
      leader = i;
  }
  if (seen)
    refuse_metric("collection", "cannot add '", key,
                  "' after a batch was accumulated");
  auto leads = leader == members_.end();
  if (!leads)
    x->states_ = leader->value->states_;
  members_.push_back({std::move(key), std::move(x), leads});
}

std::string metric_collection::full_name(const member& x) const {
  return options_.prefix + x.key + options_.postfix;
}

tensor_map
metric_collection::named(const std::vector<at::Tensor>& values) const {
  tensor_map result;
  for (std::size_t i = 0; i < members_.size(); ++i)
    result.emplace(full_name(members_[i]), values[i]);
  return result;
}

} // namespace troupe
