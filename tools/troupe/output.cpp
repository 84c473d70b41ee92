#include "tools/troupe/output.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

#include <unistd.h>

#include "troupe/callbacks/console.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::tool {

using namespace internal;

namespace {

[[noreturn]] void end_for_lack_of_output(int code) {
  if (code == EPIPE) { // The parent process ignored SIGPIPE.
    std::signal(SIGPIPE, SIG_DFL);
    std::raise(SIGPIPE);
  }
  std::fprintf(stderr, "troupe: cannot write to standard output: %s\n",
               std::strerror(code));
  std::_Exit(failed);
}

bool has_colors() {
  static const auto result = [] {
    auto wish = std::getenv("NO_COLOR");
    return !(wish && *wish) && is_live_terminal(STDOUT_FILENO);
  }();
  return result;
}

const char* code_of(color x) {
  switch (x) {
    case color::none:
      return "";
    case color::bold:
      return "\033[1m";
    case color::dim:
      return "\033[2m";
    case color::red:
      return "\033[31m";
    case color::green:
      return "\033[32m";
    case color::yellow:
      return "\033[33m";
    case color::cyan:
      return "\033[36m";
  }
  return "";
}

void append_cell(std::string& out, const cell& x, int width, bool is_right,
                 bool is_last) {
  auto blank = static_cast<std::size_t>(
    std::max(0, width - internal::display_width(x.text)));
  if (is_right)
    out.append(blank, ' ');
  out += painted(x.text, x.paint);
  if (!is_right && !is_last)
    out.append(blank, ' ');
}

} // namespace

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()
      || std::fflush(stdout) != 0)
    end_for_lack_of_output(errno);
}

void print_json(const json_object& x) {
  print(json::text_of(x, 2) + '\n');
}

void print_json_line(const json_object& x) {
  print(json::text_of(x) + '\n');
}

void complain(std::string_view text) {
  std::fprintf(stderr, "troupe: %s\n", one_line(text).c_str());
}

std::string one_line(std::string_view text) {
  return fit_to_line(std::string{text}, std::numeric_limits<int>::max());
}

expected<void> put_page(const std::string& html, const fs::path& given,
                        std::optional<json_object> details) {
  if (given == "-") {
    print(html);
    return {};
  }
  TROUPE_TRY(auto file, absolute_path(given));
  TROUPE_TRY(auto found, look_up(file));
  if (found.exists() && !found.is_file())
    return failure(ec::invalid_argument,
                   file.string() + " is not a regular file; - prints the page");
  TROUPE_TRY_VOID(replace_file(file, html));
  if (details) {
    (*details)["page"] = utf8_text(file.string());
    print_json(*details);
  } else {
    print(given.string() + '\n');
  }
  return {};
}

std::string painted(std::string_view text, color x) {
  if (x == color::none || text.empty() || !has_colors())
    return std::string{text};
  return concat(code_of(x), text, "\033[0m");
}

std::optional<int> columns_of_stdout() {
  if (::isatty(STDOUT_FILENO) != 1)
    return std::nullopt;
  return terminal_columns(STDOUT_FILENO);
}

std::string table::text(int indent) const {
  auto count = columns_.size();
  std::vector<int> widths(count);
  auto lines = rows_;
  for (std::size_t i = 0; i < count; ++i)
    widths[i] = display_width(columns_[i].title);
  for (auto& row : lines) {
    for (std::size_t i = 0; i < count; ++i) {
      row[i].text = one_line(row[i].text);
      widths[i] = std::max(widths[i], display_width(row[i].text));
    }
  }
  if (auto columns = columns_of_stdout(); columns && count > 0) {
    auto rest = *columns - indent;
    for (std::size_t i = 0; i + 1 < count; ++i)
      rest -= widths[i] + 2;
    widths.back() = std::clamp(widths.back(), 1, std::max(rest, 8));
    for (auto& row : lines)
      row.back().text = fit_to_line(row.back().text, widths.back());
  }
  std::string out;
  auto append_row = [&](const std::vector<cell>& row) {
    out.append(static_cast<std::size_t>(indent), ' ');
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0)
        out += "  ";
      append_cell(out, row[i], widths[i], columns_[i].is_right, i + 1 == count);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    out += '\n';
  };
  std::vector<cell> titles;
  for (auto& x : columns_)
    titles.push_back({x.title, color::bold});
  append_row(titles);
  for (auto& row : lines)
    append_row(row);
  return out;
}

std::string title_text(std::string_view title) {
  return painted(one_line(title), color::bold) + '\n';
}

std::string pairs_text(const std::vector<std::pair<std::string, cell>>& pairs) {
  std::string out;
  std::size_t width = 0;
  for (auto& x : pairs)
    width = std::max(width, x.first.size());
  for (auto& [name, value] : pairs)
    out += concat("  ", painted(name, color::dim),
                  std::string(width - name.size() + 2, ' '),
                  painted(one_line(value.text), value.paint), '\n');
  return out;
}

void fact_list::add(std::string name, std::string text, color paint) {
  if (!text.empty())
    pairs.emplace_back(std::move(name), cell{std::move(text), paint});
}

std::string time_text(std::chrono::system_clock::time_point x) {
  return local_text(x, "%Y-%m-%d %H:%M:%S");
}

json_object
time_json(const std::optional<std::chrono::system_clock::time_point>& x) {
  return x ? json_object(timestamp(*x)) : json_object();
}

std::string size_text(std::uint64_t bytes) {
  static constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024)
    return concat(bytes, " B");
  auto x = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; x >= 1024 && unit + 1 < units.size(); ++unit)
    x /= 1024;
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.1f %s", x, units.at(unit));
  return text.data();
}

std::string number_text(double x) {
  return to_string(metric_value{x});
}

json_object number_json(double x) {
  return json::value_of(x);
}

json_object text_json(std::string_view x) {
  return x.empty() ? json_object() : json_object(utf8_text(x));
}

json_object metrics_json(const metrics& x) {
  auto result = json_object::object();
  for (auto& [name, value] : x)
    result[utf8_text(name)] = json::value_of(value);
  return result;
}

} // namespace troupe::tool
