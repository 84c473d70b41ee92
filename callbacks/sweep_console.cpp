#include "troupe/callbacks/sweep_console.hpp"

#include <sys/ioctl.h>

#include <algorithm>
#include <climits>

#include "troupe/callbacks/status_text.hpp"
#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// Rows of a terminal that does not say how many it has.
constexpr std::size_t usual_rows = 24;

/// Columns of a line about a trial in a log.
constexpr int log_columns = 240;

std::size_t terminal_rows(int fd) {
  winsize size{};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row
                                                              : usual_rows;
}

using row = std::vector<std::string>;

row row_of(const trial& x, const std::string& metric) {
  auto value = x.metrics.find(metric);
  row result{x.name, elapsed_text(x.seconds), std::to_string(x.reports),
             value ? to_string(*value) : "-"};
  for (auto& [name, param] : x.params)
    result.push_back(to_string(param));
  return result;
}

std::string line_of(const row& cells, const std::vector<int>& widths,
                    int columns) {
  std::string result;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    result += cells[i];
    auto missing = widths[i] - display_width(cells[i]);
    if (i + 1 < cells.size())
      result.append(static_cast<std::size_t>(missing) + 2, ' ');
  }
  return fit_to_line(result, columns) + '\n';
}

} // namespace

std::string totals_text(const sweep_status& x) {
  auto result = concat(x.running.size(), " running, ", x.ended);
  if (x.trials)
    result += concat(" of ", *x.trials);
  result += " ended";
  if (x.failed > 0)
    result += concat(", ", x.failed, " failed");
  result += ", " + elapsed_text(x.elapsed_s);
  if (x.best)
    result +=
      concat("; best ", x.metric, ' ', to_string(metric_value{*x.best->score}),
             ": ", x.best->name, " (", to_string(x.best->params), ")");
  return result;
}

std::string table_text(const sweep_status& x, int columns, std::size_t rows) {
  std::vector<row> all;
  if (!x.running.empty()) {
    row header{"trial", "time", "reports", x.metric};
    for (auto& [name, value] : x.running.front().params)
      header.push_back(name);
    all.push_back(std::move(header));
  }
  for (auto& one : x.running)
    if (all.size() <= rows)
      all.push_back(row_of(one, x.metric));
  std::vector<int> widths;
  for (auto& cells : all) {
    widths.resize(std::max(widths.size(), cells.size()));
    for (std::size_t i = 0; i < cells.size(); ++i)
      widths[i] = std::max(widths[i], display_width(cells[i]));
  }
  std::string result;
  for (auto& cells : all)
    result += line_of(cells, widths, columns);
  return result + fit_to_line(totals_text(x), columns) + '\n';
}

std::string trial_text(const trial& x, const std::string& metric) {
  if (x.status == run_status_kind::running)
    return concat(x.name, " begins: ", to_string(x.params));
  auto value = x.metrics.find(metric);
  auto result = concat(
    x.name, " ", to_string(x.status), " after ", counted(x.reports, "report"),
    ", ", elapsed_text(x.seconds), ": ", metric, "=",
    value ? to_string(*value) : "-", " with ", to_string(x.params));
  return x.reason.empty() ? result : result + "; " + x.reason;
}

sweep_console::sweep_console(console_style style, int fd)
  : style_(style), output_{fd} {
  if (style_ == console_style::automatic)
    style_ = is_live_terminal(fd) ? console_style::live : console_style::plain;
}

void sweep_console::update(const sweep_status& x) {
  if (style_ != console_style::live || !is_writable_now(output_.fd))
    return;
  auto rows = std::max<std::size_t>(terminal_rows(output_.fd), 4) - 3;
  auto text = table_text(x, terminal_columns(output_.fd) - 1, rows);
  erase();
  output_.write(text);
  drawn_ = static_cast<std::size_t>(std::ranges::count(text, '\n'));
}

void sweep_console::note(std::string_view line) {
  auto columns = style_ == console_style::live
                   ? terminal_columns(output_.fd) - 1
                   : log_columns;
  write_line(line, columns - 8);
}

void sweep_console::whole_note(std::string_view line) {
  write_line(line, INT_MAX);
}

void sweep_console::write_line(std::string_view line, int columns) {
  if (style_ == console_style::quiet)
    return;
  erase();
  output_.write("troupe: " + fit_to_line(line, columns) + '\n');
}

void sweep_console::erase() {
  if (drawn_ > 0)
    output_.write(concat("\x1b[", drawn_, "A\r\x1b[J"));
  drawn_ = 0;
}

} // namespace troupe::internal
