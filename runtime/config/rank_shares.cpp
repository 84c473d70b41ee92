#include "troupe/runtime/config/rank_shares.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

// Each round gives every host that has room the same number of ranks; the last
// one gives one rank to each until none is left.
std::vector<int> deal_ranks(const std::vector<int>& slots, int ranks) {
  std::vector<int> result(slots.size());
  for (;;) {
    int open = 0;
    for (std::size_t i = 0; i < slots.size(); ++i)
      open += result[i] < slots[i] ? 1 : 0;
    if (open == 0 || ranks <= 0)
      return result;
    auto each = std::max(ranks / open, 1);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      auto more = std::clamp(slots[i] - result[i], 0, std::min(each, ranks));
      result[i] += more;
      ranks -= more;
    }
  }
}

int ranks_in(const std::vector<host_share>& shares) noexcept {
  return shares.empty() ? 0 : shares.back().first_rank + shares.back().ranks;
}

// -- what ranks claim

namespace {

std::string number(double x) {
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%g", x);
  return buffer;
}

expected<void> check_amount(const char* what, double each) {
  if (std::isfinite(each) && each >= 0)
    return {};
  return failure(ec::invalid_config,
                 concat("scaling.resources_per_worker.", what,
                        " must be a number >= 0, got ", number(each)));
}

std::string shortage_of(const char* what, double each, int ranks,
                        std::string_view host, double have) {
  if (each * ranks <= have)
    return {};
  return concat(counted(ranks, "worker"),
                ranks == 1 ? " asks for " : " ask for ", number(each * ranks),
                ' ', what, ", ", host, " has ", number(have));
}

} // namespace

std::string rank_claim::shortage_on(std::string_view host,
                                    const host_resources& have,
                                    int ranks) const {
  auto result = shortage_of("cpus", cpus, ranks, host, have.cpus);
  return result.empty() ? shortage_of("gpus", gpus, ranks, host, have.gpus)
                        : result;
}

host_room rank_claim::room_on(std::string_view host, const host_resources& have,
                              int planned, int fewest) const {
  host_room result{planned, shortage_on(host, have, planned)};
  while (result.ranks > 0 && !shortage_on(host, have, result.ranks).empty())
    --result.ranks;
  if (result.shortage.empty() || result.ranks >= std::max(fewest, 1))
    return result;
  return {0, shortage_on(host, have, std::max(fewest, 1))};
}

rank_claim claim_of(const scaling_config& x) {
  auto& each = x.resources_per_worker;
  return {each.cpus.value_or(0), each.gpus.value_or(x.use_gpu ? 1 : 0)};
}

expected<void> validate(const rank_claim& x) {
  TROUPE_TRY_VOID(check_amount("cpus", x.cpus));
  if (std::isfinite(x.gpus) && x.gpus != std::floor(x.gpus))
    return failure(
      ec::invalid_config,
      concat("scaling.resources_per_worker.gpus must be a whole number, got ",
             number(x.gpus), ": ranks do not share a GPU"));
  return check_amount("gpus", x.gpus);
}

} // namespace troupe::internal
