#include "troupe/runtime/sweep/trial_judge.hpp"

namespace troupe::internal {

std::size_t trial_judge::restore(const std::vector<trial_comparison>& all) {
  std::lock_guard guard{mutex_};
  std::size_t others = 0;
  if (!rungs_)
    return others;
  for (auto& x : all) {
    if (x.metric != metric_)
      continue;
    auto entry = rungs_->restore(x.content);
    if (!entry)
      ++others;
    else if (!entry->continues)
      ended_[entry->trial] = rungs_->reason_of(*entry);
  }
  return others;
}

std::optional<std::string> trial_judge::judge(std::size_t index,
                                              const report_batch& x) {
  if (x.values.empty())
    return std::nullopt;
  auto value = x.values.front().find_number(metric_);
  std::lock_guard guard{mutex_};
  if (!rungs_ || !store_)
    return std::nullopt;
  if (auto earlier = ended_.find(index); earlier != ended_.end())
    return earlier->second;
  if (!value)
    return std::nullopt;
  auto entry = rungs_->judge(index, x.index + 1, *value);
  if (!entry)
    return std::nullopt;
  if (auto ok = store_->compare({metric_, *entry}); !ok)
    problem_ = ok.error();
  if (entry->continues)
    return std::nullopt;
  return rungs_->reason_of(*entry);
}

void trial_judge::retire() {
  std::lock_guard guard{mutex_};
  store_ = nullptr;
}

error trial_judge::problem() const {
  std::lock_guard guard{mutex_};
  return problem_;
}

} // namespace troupe::internal
