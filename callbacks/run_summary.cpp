#include "troupe/callbacks/run_summary.hpp"

#include "troupe/callbacks/console_progress.hpp"
#include "troupe/callbacks/elapsed_text.hpp"
#include "troupe/callbacks/status_text.hpp"
#include "troupe/runtime/run/result.hpp"
#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe {

namespace {

std::string counted(std::uint64_t n, const char* noun) {
  return std::to_string(n) + ' ' + noun + (n == 1 ? "" : "s");
}

/// *text* with every line after the first as far to the right as the first, and
/// '?' for other control characters, which a terminal would obey.
std::string hanging(const std::string& text, std::size_t indent) {
  std::string result;
  for (char c : text) {
    auto obeyed = (c >= 0 && c < ' ' && c != '\n' && c != '\t') || c == 0x7f;
    result += obeyed ? '?' : c;
    if (c == '\n')
      result.append(indent, ' ');
  }
  return result;
}

run_state state_of(run_status_kind x) {
  switch (x) {
    case run_status_kind::running:
      return run_state::running;
    case run_status_kind::finished:
      return run_state::finished;
    case run_status_kind::errored:
      return run_state::errored;
    case run_status_kind::aborted:
      return run_state::aborted;
    case run_status_kind::preempted:
      return run_state::preempted;
  }
  return run_state::errored;
}

} // namespace

run_summary summary_of(const result& x, std::uint64_t reports,
                       double elapsed_s) {
  run_summary summary{.outcome = state_of(x.status),
                      .name = x.path.filename().string(),
                      .reports = reports,
                      .attempts = x.attempts,
                      .elapsed_s = elapsed_s,
                      .last_metrics = x.metrics,
                      .path = x.path.string()};
  // Someone may have removed it while the run went on.
  auto found = look_up(x.path);
  auto is_gone = found && !found->exists();
  if (is_gone)
    summary.path += ", which is not there any more";
  if (!x.best_checkpoints.empty() && !is_gone)
    summary.best_checkpoint = x.best_checkpoints.back().data.path().string();
  if (x.error)
    summary.reason = {x.error->code, x.error->message};
  return summary;
}

std::string to_string(const run_summary& x) {
  auto text = x.name + ' ' + std::string{to_string(x.outcome)} + ": "
              + counted(x.reports, "report") + " in "
              + counted(x.attempts, "attempt") + ", "
              + elapsed_text(x.elapsed_s) + '\n';
  auto line = [&text](const std::string& label, const std::string& value) {
    text += "  " + label + hanging(value, label.size() + 2) + '\n';
  };
  if (x.reason)
    line("error: ", x.reason.message);
  if (!x.last_metrics.empty())
    line("last metrics: ",
         metrics_text(x.last_metrics, console_progress::line_columns));
  if (x.best_checkpoint)
    line("best checkpoint: ", *x.best_checkpoint);
  line("files: ", x.path);
  return text;
}

} // namespace troupe
