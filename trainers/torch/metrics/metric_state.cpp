#include "troupe/trainers/torch/metrics/metric_state.hpp"

#include <ATen/ATen.h>

namespace troupe {

namespace {

void combine_items(metric_state& into, const metric_state& from, double share) {
  switch (into.reduction) {
    case metric_reduction::sum:
      into.value = into.value + from.value;
      break;
    case metric_reduction::mean:
      into.value = into.value * (1 - share) + from.value * share;
      break;
    case metric_reduction::min:
      into.value = at::minimum(into.value, from.value);
      break;
    case metric_reduction::max:
      into.value = at::maximum(into.value, from.value);
      break;
    case metric_reduction::cat:
      into.parts.insert(into.parts.end(), from.parts.begin(), from.parts.end());
      break;
  }
}

} // namespace

at::Tensor metric_state::whole() const {
  if (reduction != metric_reduction::cat)
    return value;
  if (parts.empty())
    return initial;
  return parts.size() == 1 ? parts.front() : at::cat(parts);
}

void metric_state::assign(at::Tensor x) {
  if (reduction != metric_reduction::cat) {
    value = std::move(x);
    return;
  }
  parts.clear();
  if (x.size(0) > 0)
    parts.push_back(std::move(x));
}

void metric_state::reset() {
  parts.clear();
  if (reduction != metric_reduction::cat)
    value = initial;
}

void metric_states::reset() {
  for (auto& x : items)
    x.reset();
  updates = 0;
  ++revision;
}

at::Device metric_states::device() const {
  return items.front().initial.device();
}

void metric_states::to(at::Device where) {
  if (device() == where)
    return;
  for (auto& x : items) {
    x.initial = x.initial.to(where);
    if (x.value.defined())
      x.value = x.value.to(where);
    for (auto& part : x.parts)
      part = part.to(where);
  }
}

at::Tensor internal::unshared(at::Tensor x) {
  auto shared = x.use_count() > 1 || x.storage().use_count() > 1;
  return shared ? x.clone() : x;
}

void internal::combine_by_reduction(metric_states& into,
                                    const metric_states& from) {
  auto updates = into.updates + from.updates;
  auto share = updates == 0 ? 0.0
                            : static_cast<double>(from.updates)
                                / static_cast<double>(updates);
  for (std::size_t i = 0; i < into.items.size(); ++i)
    combine_items(into.items[i], from.items[i], share);
}

} // namespace troupe
