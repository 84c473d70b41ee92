#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "troupe/runtime/error.hpp"

namespace troupe::internal {

/// How a call of user code ended.
struct call_outcome {
  error reason;          ///< `ec::none`: it returned.
  bool stopped = false;  ///< It left because it was asked to.
  std::string type = {}; ///< Type of its exception.
};

/// Calls *code*, which *where* names, and turns an exception into a value. A
/// process that the code has forked ends here.
call_outcome call_user_code(std::string_view where,
                            const std::function<void()>& code);

/// Calls the user's hook *name*. The error of an exception names the hook;
/// `ec::stopped` if it left because the run stops.
error call_rank_hook(std::string_view name, const std::function<void()>& hook);

} // namespace troupe::internal
