#include "troupe/trainers/inline_callbacks.hpp"

#include "troupe/callbacks/console.hpp"

namespace troupe {

void inline_callbacks::before_run() {
  note(list_.before_run(context_));
  if (!told_)
    return;
  auto attempt = context_.attempt;
  for (auto& [batch, data] : told_->take_untold()) {
    context_.attempt = batch.attempt;
    after_report(batch.index, batch.values, data);
  }
  context_.attempt = attempt;
}

void inline_callbacks::after_report(std::uint64_t index,
                                    const std::vector<metrics>& values,
                                    const std::optional<checkpoint>& data) {
  if (!told_)
    return;
  context_.report_index = index;
  note(list_.after_report(context_, values, data));
  if (auto ok = told_->told(index); !ok && !end_reason_)
    end_reason_ = ok.error();
}

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
