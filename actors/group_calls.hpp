#pragma once

#include <cstdint>
#include <optional>

#include "troupe/actors/group_core.hpp"
#include "troupe/actors/group_ending.hpp"
#include "troupe/actors/group_waits.hpp"

namespace troupe::internal {

/// What a worker group does about the reports and barriers of its ranks: pairs
/// them, has reports stored, and answers. Ends ranks that wait for each other
/// in different calls.
class group_calls {
public:
  group_calls(group_core& group, group_ending& ending, group_waits& waits)
    : group_(group), ending_(ending), waits_(waits) {}

  void take(host_calls& x);

private:
  void add(host_call& call, report& x);
  void join(host_call& call, join_barrier& x);
  void commit(report_batch batch);
  void answered(reports_answered x);
  /// What the answer to report *index* says about leaving.
  std::optional<stop_notice> notice_for(std::uint64_t index,
                                        bool has_checkpoint);
  void refuse(const call_refused& x);
  /// Finds ranks that can never meet; otherwise waits begin.
  void check();

  group_core& group_;
  group_ending& ending_;
  group_waits& waits_;
};

} // namespace troupe::internal
