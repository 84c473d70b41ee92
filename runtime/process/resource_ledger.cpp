#include "troupe/runtime/process/resource_ledger.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <utility>

namespace troupe::internal {

/// How many shares have each of some things.
class use_counts {
public:
  /// Takes *count* of *names*, or all. Returns their places in *names*, and how
  /// many of them had been taken before.
  std::pair<std::vector<std::size_t>, std::size_t>
  take(const std::vector<std::string>& names, std::size_t count) {
    std::lock_guard guard{mutex_};
    std::vector<std::size_t> places(names.size());
    std::iota(places.begin(), places.end(), std::size_t{0});
    std::ranges::stable_sort(
      places, {}, [&](std::size_t place) { return uses_[names[place]]; });
    places.resize(std::min(count, places.size()));
    std::ranges::sort(places);
    std::size_t in_use = 0;
    for (auto place : places)
      if (uses_[names[place]]++ > 0)
        ++in_use;
    return {std::move(places), in_use};
  }

  void give_back(const std::vector<std::string>& names) {
    std::lock_guard guard{mutex_};
    for (auto& name : names)
      --uses_[name];
  }

private:
  std::mutex mutex_;
  std::map<std::string, int> uses_;
};

namespace {

/// A share with what it has to give back. It may outlive the ledger.
class counted_share : public resource_share {
public:
  counted_share(std::shared_ptr<use_counts> all_cores,
                std::shared_ptr<use_counts> all_gpus)
    : all_cores_(std::move(all_cores)), all_gpus_(std::move(all_gpus)) {}

  counted_share(const counted_share&) = delete;
  counted_share& operator=(const counted_share&) = delete;

  ~counted_share() {
    all_cores_->give_back(taken_cores_);
    all_gpus_->give_back(taken_gpus_);
  }

  void take(const resource_ledger::demand& x) {
    std::vector<std::string> names;
    for (auto core : x.cores)
      names.push_back(std::to_string(core));
    auto [core_places, old_cores] = all_cores_->take(names, x.core_count);
    for (auto place : core_places) {
      cores.push_back(x.cores[place]);
      taken_cores_.push_back(names[place]);
    }
    cores_in_use = old_cores;
    auto [gpu_places, old_gpus] = all_gpus_->take(x.gpus, x.gpu_count);
    for (auto place : gpu_places) {
      gpus.push_back(static_cast<int>(place));
      taken_gpus_.push_back(x.gpus[place]);
    }
    gpus_in_use = old_gpus;
  }

private:
  std::shared_ptr<use_counts> all_cores_;
  std::shared_ptr<use_counts> all_gpus_;
  std::vector<std::string> taken_cores_;
  std::vector<std::string> taken_gpus_;
};

} // namespace

resource_ledger::resource_ledger()
  : cores_(std::make_shared<use_counts>()),
    gpus_(std::make_shared<use_counts>()) {}

std::shared_ptr<const resource_share> resource_ledger::take(const demand& x) {
  auto result = std::make_shared<counted_share>(cores_, gpus_);
  result->take(x);
  return result;
}

// Never destroyed: threads may start runs until the program has ended.
resource_ledger& own_resource_ledger() {
  static auto instance = new resource_ledger;
  return *instance;
}

} // namespace troupe::internal
