#include "troupe/actors/protocol/messages.hpp"

#include <variant>

namespace troupe {

namespace {

constexpr std::size_t max_page_bytes = 1024 * 1024;

// Approximate size of *x* in a message.
std::size_t size_of(const reported_checkpoint& x) {
  auto result = x.data.path().size() + 32;
  for (auto& [name, value] : x.values) {
    auto text = std::get_if<std::string>(&value.variant());
    result += name.size() + 16 + (text ? text->size() : 0);
  }
  return result;
}

} // namespace

checkpoint_list page_of(const std::vector<reported_checkpoint>& all,
                        std::uint64_t first) {
  checkpoint_list result;
  std::size_t bytes = 0;
  for (auto& x : all) {
    if (x.index < first)
      continue;
    bytes += size_of(x);
    if (bytes > max_page_bytes && !result.entries.empty()) {
      result.more = true;
      break;
    }
    result.entries.push_back(x);
  }
  return result;
}

} // namespace troupe
