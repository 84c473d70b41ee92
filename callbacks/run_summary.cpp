#include "troupe/callbacks/run_summary.hpp"

#include "troupe/callbacks/elapsed_text.hpp"

namespace troupe {

namespace {

std::string counted(std::uint64_t n, const char* noun) {
  return std::to_string(n) + ' ' + noun + (n == 1 ? "" : "s");
}

/// *text* with every line after the first as far to the right as the first.
std::string hanging(const std::string& text, std::size_t indent) {
  std::string result;
  for (char c : text) {
    result += c;
    if (c == '\n')
      result.append(indent, ' ');
  }
  return result;
}

} // namespace

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
    line("last metrics: ", to_string(x.last_metrics));
  if (x.best_checkpoint)
    line("best checkpoint: ", *x.best_checkpoint);
  line("files: ", x.path);
  return text;
}

} // namespace troupe
