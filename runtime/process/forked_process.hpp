#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <memory>
#include <string_view>

#include "troupe/runtime/error.hpp"

namespace troupe::internal {

/// Remembers the process that made an object. One that user code forks has a
/// copy of the object, but not its threads, and what the object would write or
/// remove is still in use.
class owner_process {
public:
  bool is_here() const noexcept { return ::getpid() == pid_; }

private:
  pid_t pid_ = ::getpid();
};

/// Destroys an object in the process that made it; in one forked from that, the
/// object stays until the process ends.
template <class T>
struct delete_by_owner {
  void operator()(T* x) const noexcept {
    if (owner.is_here())
      delete x;
  }

  owner_process owner;
};

template <class T>
using owned_ptr = std::unique_ptr<T, delete_by_owner<T>>;

/// Ends this process if it is not *owner* but one that user code forked: what
/// left that code, *failure* if it threw, is not the owner's. Says so on stderr
/// (in a rank: its log), with *where* for the code, and flushes stdio. Exits
/// with 0, after a failure with 1.
void leave_if_forked(pid_t owner, std::string_view where, const error& failure);

} // namespace troupe::internal
