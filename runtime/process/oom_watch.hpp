#pragma once

#include <cstdint>
#include <optional>

#include "troupe/runtime/fs.hpp"

namespace troupe::internal {

/// Says whether the kernel may have killed a process for a lack of memory, by
/// the number of such kills in the control group of this process, or in the
/// next one above it that has the memory controller. It does not say which
/// processes they were.
class oom_watch {
public:
  /// Finds the file with that number. *root* has `proc` and the mount points.
  explicit oom_watch(const fs::path& root = "/");

  /// Earlier kills explain nothing from now on.
  void begin();

  /// A process of the group was killed: whether there was a kill that has
  /// explained no other end.
  bool explains_end();

private:
  std::optional<std::uint64_t> kills() const;

  fs::path file_; ///< Empty: there is none.
  std::uint64_t explained_ = 0;
};

} // namespace troupe::internal
