#include "troupe/runtime/store/retention.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "troupe/runtime/checkpoint/manifest.hpp"

namespace troupe {

namespace {

// Higher is better; nothing if the checkpoint has no usable score.
std::optional<double> score(const reported_checkpoint& x,
                            const checkpoint_config& config) {
  auto value = x.values.number(config.checkpoint_score_attribute);
  if (!value || std::isnan(*value))
    return std::nullopt;
  return config.checkpoint_score_order == score_order::max ? *value : -*value;
}

} // namespace

std::vector<std::size_t>
retention::ranking(const std::vector<reported_checkpoint>& all) const {
  std::vector<std::size_t> result(all.size());
  std::iota(result.begin(), result.end(), 0);
  if (config_.checkpoint_score_attribute.empty())
    return result;
  std::vector<std::optional<double>> scores;
  for (auto& x : all)
    scores.push_back(score(x, config_));
  // Stable: among equals the newer stays to the right. An unset score is less
  // than any number.
  std::ranges::stable_sort(
    result, [&](auto a, auto b) { return scores[a] < scores[b]; });
  return result;
}

bool retention::is_scored(const reported_checkpoint& x) const {
  return score(x, config_).has_value();
}

std::size_t retention::first_kept(std::size_t count) const noexcept {
  if (!config_.num_to_keep)
    return 0;
  auto keep = static_cast<std::size_t>(std::max(*config_.num_to_keep, 1));
  return count > keep ? count - keep : 0;
}

std::vector<reported_checkpoint>
retention::best(const std::vector<reported_checkpoint>& all) const {
  auto ranks = ranking(all);
  std::vector<reported_checkpoint> result;
  for (auto i = first_kept(all.size()); i < ranks.size(); ++i)
    result.push_back(all[ranks[i]]);
  return result;
}

std::vector<reported_checkpoint>
retention::to_evict(const std::vector<reported_checkpoint>& all) const {
  auto ranks = ranking(all);
  ranks.resize(first_kept(all.size()));
  std::ranges::sort(ranks);
  std::vector<reported_checkpoint> result;
  for (auto i : ranks)
    if (i + 1 != all.size()) // the latest stays
      result.push_back(all[i]);
  return result;
}

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
