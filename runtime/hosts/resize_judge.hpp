#pragma once

#include <optional>
#include <string>

#include "troupe/runtime/config/scaling_config.hpp"

namespace troupe::internal {

/// Decides after which report the ranks of an elastic run leave, so that the
/// next attempt has more of them.
class resize_judge {
public:
  explicit resize_judge(resize_policy policy = resize_policy::never)
    : policy_(policy) {}

  /// An attempt with *ranks* ranks begins.
  void attempt_began(int ranks) noexcept {
    ranks_ = ranks;
    possible_ = ranks;
  }

  /// The hosts that are here now could have *ranks*. The latest number counts:
  /// a host that has come may go again before its first attempt.
  void hosts_changed(int ranks) noexcept { possible_ = ranks; }

  /// A report is stored, perhaps with a checkpoint. Why ranks are to leave
  /// after it; nothing: they stay.
  std::optional<std::string> reported(bool has_checkpoint) const;

private:
  resize_policy policy_;
  int ranks_ = 0;
  int possible_ = 0;
};

} // namespace troupe::internal
