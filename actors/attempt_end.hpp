#pragma once

#include <optional>
#include <string>

#include "troupe/actors/protocol/messages.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/run/run_state_machine.hpp"

namespace troupe::internal {

/// What the end of an attempt means for its run.
struct attempt_end {
  /// Why the ranks have ended; `ec::none`: all loops returned.
  error reason;
  /// What follows, without secrets where it is shown; unset: nothing, the run
  /// has ended the ranks itself.
  std::optional<run_event> event;
};

/// *is_awaited*: as `run_state_machine::awaits_group`. Ranks that were ended
/// although the run waits for their end are started again.
attempt_end end_of(const attempt_ended& x, bool is_awaited);

/// *causes*: why each of the ranks failed, as the result of the run says it.
attempt_end end_of(const attempt_failed& x, const std::string& causes);

} // namespace troupe::internal
