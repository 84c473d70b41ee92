#include "troupe/actors/protocol/messages.hpp"

#include <utility>
#include <variant>

namespace troupe {

namespace {

constexpr std::size_t max_page_bytes = 1024 * 1024;

checkpoint_entry entry_of(const reported_checkpoint& x) {
  return {x.data.path().string(), x.values, x.index, x.attempt};
}

// About what *x* takes in a message.
std::size_t size_of(const checkpoint_entry& x) {
  auto result = x.path.size() + 32;
  for (auto& [name, value] : x.values) {
    auto text = std::get_if<std::string>(&value.variant());
    result += name.size() + 16 + (text ? text->size() : 0);
  }
  return result;
}

} // namespace

std::vector<checkpoint_entry>
entries_of(const std::vector<reported_checkpoint>& x) {
  std::vector<checkpoint_entry> result;
  for (auto& one : x)
    result.push_back(entry_of(one));
  return result;
}

checkpoint_list page_of(const std::vector<reported_checkpoint>& all,
                        std::uint64_t first) {
  checkpoint_list result;
  std::size_t bytes = 0;
  for (auto& x : all) {
    if (x.index < first)
      continue;
    auto entry = entry_of(x);
    bytes += size_of(entry);
    if (bytes > max_page_bytes && !result.entries.empty()) {
      result.more = true;
      break;
    }
    result.entries.push_back(std::move(entry));
  }
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
