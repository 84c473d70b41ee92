#pragma once

#include <cstdint>
#include <vector>

#include "troupe/runtime/fs.hpp"

namespace troupe::internal {

/// The cores that a process may use.
struct usable_cores {
  /// It may run on these, in ascending order.
  std::vector<int> numbers;

  /// It gets the time of as many, at least 1: less than that of `numbers` if
  /// its container has a limit.
  int count = 1;

  /// Whether it has only a part of their time. Nothing is pinned then: which of
  /// the cores are idle is known to the kernel alone, and another container of
  /// this machine would choose the same ones.
  bool are_shared() const noexcept;

  /// *some* of these; if they are shared, as many of them as *some* are.
  usable_cores part(std::vector<int> some) const;
};

/// The cores of the calling thread. The one place where cores are counted: by
/// its affinity, and by `cores_of_quotas`.
usable_cores own_cores(const fs::path& root = "/");

/// The most cores whose time the control groups of this process let it have
/// (versions 1 and 2), a part of a core counted as a whole one. What cannot be
/// read limits nothing. *root* has `proc` and the mount points.
std::int64_t cores_of_quotas(const fs::path& root);

} // namespace troupe::internal
