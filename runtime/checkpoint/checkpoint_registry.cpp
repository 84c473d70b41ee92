#include "troupe/runtime/checkpoint/checkpoint_registry.hpp"

#include <algorithm>

#include "troupe/runtime/checkpoint/checkpoint_name.hpp"

namespace troupe {

checkpoint_registry::checkpoint_registry(checkpoint_config config,
                                         std::vector<reported_checkpoint> all)
  : retention_(std::move(config)), all_(std::move(all)) {
  std::ranges::stable_sort(all_, {}, &reported_checkpoint::index);
}

expected<std::vector<reported_checkpoint>>
checkpoint_registry::add(reported_checkpoint x) {
  auto name = x.data.name();
  if (find(name))
    return name_is_taken(name);
  if (latest() && x.index <= latest()->index)
    return failure(ec::conflict, "checkpoint '" + name + "' of report "
                                   + std::to_string(x.index)
                                   + " is not newer than the latest, '"
                                   + latest()->data.name() + "' of report "
                                   + std::to_string(latest()->index));
  all_.push_back(std::move(x));
  auto evicted = retention_.to_evict(all_);
  for (auto& old : evicted)
    remove(old.data.name());
  return evicted;
}

bool checkpoint_registry::remove(const std::string& name) {
  return std::erase_if(all_,
                       [&](const auto& x) { return x.data.name() == name; })
         > 0;
}

const reported_checkpoint*
checkpoint_registry::find(const std::string& name) const noexcept {
  auto i = std::ranges::find_if(
    all_, [&](const auto& x) { return x.data.name() == name; });
  return i == all_.end() ? nullptr : &*i;
}

const reported_checkpoint* checkpoint_registry::latest() const noexcept {
  return all_.empty() ? nullptr : &all_.back();
}

} // namespace troupe
