#include "troupe/trainers/inline_callbacks.hpp"

#include "troupe/callbacks/console.hpp"

namespace troupe {

void inline_callbacks::note(const callback_outcome& x) {
  for (auto& problem : x.errors) {
    if (!quiet_)
      write_console(2, problem.message + '\n');
    // A journal that takes no line ends the run at the next report.
    (void) store_.append_event("callback_failed", context_.attempt,
                               {{"reason", problem.message}});
  }
  if (x.abort && !end_reason_)
    end_reason_ = x.errors.front();
}

} // namespace troupe
