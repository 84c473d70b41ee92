#include "troupe/runtime/store/retention.hpp"

#include <algorithm>
#include <numeric>

#include "troupe/runtime/checkpoint/manifest.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

// Approximate size of *x* in a message.
std::size_t size_of(const kept_checkpoint& x) {
  return x.data.path().size() + x.values.bytes().size() + 32;
}

} // namespace

std::vector<std::size_t>
retention::ranking(const std::vector<score_type>& scores) const {
  std::vector<std::size_t> result(scores.size());
  std::iota(result.begin(), result.end(), 0);
  if (config_.checkpoint_score_attribute.empty())
    return result;
  // Stable: among equals the newer stays to the right. An unset score is less
  // than any number.
  std::ranges::stable_sort(
    result, [&](auto a, auto b) { return scores[a] < scores[b]; });
  return result;
}

std::size_t retention::first_kept(std::size_t count) const noexcept {
  if (!config_.num_to_keep)
    return 0;
  auto keep = static_cast<std::size_t>(std::max(*config_.num_to_keep, 1));
  return count > keep ? count - keep : 0;
}

std::vector<std::size_t>
retention::to_evict(const std::vector<score_type>& scores) const {
  auto count = first_kept(scores.size());
  if (count == 0)
    return {};
  auto result = ranking(scores);
  result.resize(count);
  std::erase(result, scores.size() - 1); // the latest stays
  std::ranges::sort(result);
  return result;
}

checkpoint_registry::checkpoint_registry(checkpoint_config config,
                                         std::vector<kept_checkpoint> all)
  : retention_(std::move(config)), all_(std::move(all)) {
  std::ranges::stable_sort(all_, {}, &kept_checkpoint::index);
  scores_ = retention_.scores(all_);
}

expected<std::vector<kept_checkpoint>>
checkpoint_registry::add(kept_checkpoint x) {
  auto name = x.data.name();
  if (find(name))
    return name_is_taken(name);
  if (latest() && x.index <= latest()->index)
    return failure(ec::conflict,
                   concat("checkpoint '", name, "' of report ", x.index,
                          " is not newer than the latest, '",
                          latest()->data.name(), "' of report ",
                          latest()->index));
  scores_.push_back(retention_.score(x));
  all_.push_back(std::move(x));
  std::vector<kept_checkpoint> evicted;
  for (auto i : retention_.to_evict(scores_))
    evicted.push_back(all_[i]);
  for (auto& old : evicted)
    remove(old.data.name());
  return evicted;
}

bool checkpoint_registry::remove(const std::string& name) {
  auto found = find(name);
  if (!found)
    return false;
  auto i = found - all_.data();
  all_.erase(all_.begin() + i);
  scores_.erase(scores_.begin() + i);
  return true;
}

const kept_checkpoint*
checkpoint_registry::find(const std::string& name) const noexcept {
  auto i = std::ranges::find_if(
    all_, [&](const auto& x) { return x.data.name() == name; });
  return i == all_.end() ? nullptr : &*i;
}

const kept_checkpoint* checkpoint_registry::latest() const noexcept {
  return all_.empty() ? nullptr : &all_.back();
}

checkpoint_page checkpoint_registry::page(std::uint64_t first,
                                          std::size_t max_bytes) const {
  checkpoint_page result;
  std::size_t bytes = 0;
  auto i = std::ranges::lower_bound(all_, first, {}, &kept_checkpoint::index);
  for (; i != all_.end(); ++i) {
    bytes += size_of(*i);
    result.more = bytes > max_bytes && !result.entries.empty();
    if (result.more)
      break;
    result.entries.push_back(*i);
  }
  return result;
}

} // namespace troupe::internal
