#include "troupe/runtime/process/usable_cores.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <sched.h>

#include "troupe/runtime/process/control_groups.hpp"
#include "troupe/runtime/whole_number.hpp"

namespace troupe::internal {

namespace {

std::vector<int> cores_of_thread() {
  // The kernel refuses a set smaller than its own, which may be larger than a
  // `cpu_set_t`.
  constexpr std::size_t most_words = 4096;
  std::vector<unsigned long> words;
  auto bytes = [&] { return words.size() * sizeof(unsigned long); };
  auto set = [&] { return reinterpret_cast<cpu_set_t*>(words.data()); };
  while (::sched_getaffinity(0, bytes(), set()) != 0) {
    if (errno != EINVAL || words.size() > most_words)
      return {};
    words.resize(2 * words.size() + 1);
  }
  std::vector<int> result;
  for (std::size_t core = 0; core < 8 * bytes(); ++core)
    if (CPU_ISSET_S(core, bytes(), set()))
      result.push_back(static_cast<int>(core));
  return result;
}

std::optional<std::int64_t> number_in(const fs::path& file) {
  std::string text;
  fs::ifstream in{file};
  in >> text;
  return whole_number<std::int64_t>(text);
}

/// The time that *group* gets in each period, and the period.
std::optional<std::pair<std::int64_t, std::int64_t>>
quota_of(const fs::path& group, bool is_v2) {
  std::optional<std::int64_t> quota, period;
  if (is_v2) {
    fs::ifstream in{group / "cpu.max"};
    std::string first, second;
    in >> first >> second;
    quota = whole_number<std::int64_t>(first); // "max": there is none.
    period = whole_number<std::int64_t>(second);
  } else {
    quota = number_in(group / "cpu.cfs_quota_us"); // -1: there is none.
    period = number_in(group / "cpu.cfs_period_us");
  }
  if (!quota || !period || *quota <= 0 || *period <= 0)
    return std::nullopt;
  return std::pair{*quota, *period};
}

} // namespace

bool usable_cores::are_shared() const noexcept {
  return static_cast<std::size_t>(count) < numbers.size();
}

usable_cores usable_cores::part(std::vector<int> some) const {
  auto n = static_cast<int>(some.size());
  return {are_shared() ? numbers : std::move(some), n};
}

usable_cores own_cores(const fs::path& root) {
  usable_cores result;
  result.numbers = cores_of_thread();
  if (result.numbers.empty())
    for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency());
         ++i)
      result.numbers.push_back(static_cast<int>(i));
  auto seen = static_cast<std::int64_t>(result.numbers.size());
  result.count = static_cast<int>(std::min(seen, cores_of_quotas(root)));
  return result;
}

std::int64_t cores_of_quotas(const fs::path& root) {
  auto result = std::numeric_limits<std::int64_t>::max();
  for (auto& group : own_control_groups("cpu", root)) {
    auto below = group.below;
    while (true) {
      if (auto x = quota_of(group.mount / below, group.is_v2))
        result = std::min(result, (x->first - 1) / x->second + 1);
      if (below.empty())
        break;
      below = below.parent_path();
    }
  }
  return result;
}

} // namespace troupe::internal
