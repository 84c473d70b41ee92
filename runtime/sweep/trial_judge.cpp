#include "troupe/runtime/sweep/trial_judge.hpp"

namespace troupe::internal {

void trial_judge::restore(const std::vector<trial_comparison>& all) {
  std::lock_guard guard{mutex_};
  if (!rungs_)
    return;
  for (auto& x : all) {
    if (x.metric != metric_)
      continue;
    rungs_->restore(x.content);
    if (!x.content.continues)
      ended_[x.content.trial] = rungs_->reason_of(x.content);
  }
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
