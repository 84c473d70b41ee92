#include "troupe/runtime/process/oom_watch.hpp"

#include <string>
#include <utility>

#include "troupe/runtime/process/control_groups.hpp"
#include "troupe/runtime/whole_number.hpp"

namespace troupe::internal {
namespace {

// The same line in version 1 and 2: "oom_kill 3".
std::optional<std::uint64_t> kills_in(const fs::path& file) {
  fs::ifstream in{file};
  for (std::string key, value; in >> key >> value;)
    if (key == "oom_kill")
      return whole_number<std::uint64_t>(value);
  return std::nullopt;
}

} // namespace

oom_watch::oom_watch(const fs::path& root) {
  for (auto& group : own_control_groups("memory", root)) {
    auto name = group.is_v2 ? "memory.events" : "memory.oom_control";
    for (auto below = group.below; file_.empty(); below = below.parent_path()) {
      if (auto file = group.mount / below / name; kills_in(file))
        file_ = std::move(file);
      if (below.empty())
        break;
    }
  }
  begin();
}

void oom_watch::begin() {
  explained_ = kills().value_or(0);
}

bool oom_watch::explains_end() {
  if (kills().value_or(0) <= explained_)
    return false;
  ++explained_;
  return true;
}

std::optional<std::uint64_t> oom_watch::kills() const {
  return file_.empty() ? std::nullopt : kills_in(file_);
}

} // namespace troupe::internal
