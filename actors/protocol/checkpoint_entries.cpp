#include "troupe/actors/protocol/checkpoint_entries.hpp"

#include <utility>

namespace troupe {

std::vector<checkpoint_entry>
entries_of(const std::vector<reported_checkpoint>& x) {
  std::vector<checkpoint_entry> result;
  for (auto& one : x)
    result.push_back(
      {one.data.path().string(), one.values, one.index, one.attempt});
  return result;
}

std::vector<reported_checkpoint>
checkpoints_of(std::vector<checkpoint_entry> x) {
  std::vector<reported_checkpoint> result;
  for (auto& one : x)
    result.push_back({checkpoint::from_directory(std::move(one.path)),
                      std::move(one.values), one.index, one.attempt});
  return result;
}

} // namespace troupe
