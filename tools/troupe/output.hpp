#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/storage/json.hpp"

// What the verbs of `troupe` print: texts, tables, JSON.

namespace troupe::tool {

// Exit codes of all verbs. The third is `wrong_arguments`, also for a run or a
// folder that does not exist.
inline constexpr int done = 0;
inline constexpr int failed = 1; ///< Not done, not read, or damaged.

using json_object = internal::json::ordered_document;

/// Writes *text* to stdout. A reader that has left ends the program quietly, as
/// SIGPIPE does; any other failure ends it with `failed` and a sentence.
void print(std::string_view text);

/// Prints *x* on several lines.
void print_json(const json_object& x);

void print_json_line(const json_object& x);

/// Prints "troupe: *text*" to stderr, on one line.
void complain(std::string_view text);

/// *text* on one line without control characters: what comes from a folder must
/// not command the terminal.
std::string one_line(std::string_view text);

/// Writes *html* to the file *given* and prints that name, or prints *html* if
/// the name is "-". What is there and not a regular file is refused: a new file
/// would take its place. With *details*, prints them instead of the name, with
/// the file as their `page`.
expected<void> put_page(const std::string& html, const fs::path& given,
                        std::optional<json_object> details);

enum class color { none, bold, dim, red, green, yellow, cyan };

/// *text* in color *x*, if stdout is a terminal that shows colors and NO_COLOR
/// is not set.
std::string painted(std::string_view text, color x);

/// Columns of the terminal; nothing if stdout is not one.
std::optional<int> columns_of_stdout();

struct cell {
  std::string text;
  color paint = color::none;
};

struct column {
  std::string title;
  bool is_right = false; ///< Numbers.
};

/// Rows below titles. On a terminal, the last column is cut to its width.
class table {
public:
  explicit table(std::vector<column> columns) : columns_(std::move(columns)) {}

  void add(std::vector<cell> row) { rows_.push_back(std::move(row)); }
  bool empty() const noexcept { return rows_.empty(); }

  /// Each line begins with *indent* spaces.
  std::string text(int indent = 0) const;

private:
  std::vector<column> columns_;
  std::vector<std::vector<cell>> rows_;
};

/// The line *title* above a part of the output.
std::string title_text(std::string_view title);

/// Names and values, one a line below each other.
std::string pairs_text(const std::vector<std::pair<std::string, cell>>& pairs);

/// What is known of something, for `pairs_text`.
struct fact_list {
  std::vector<std::pair<std::string, cell>> pairs;

  /// Does nothing if *text* is empty.
  void add(std::string name, std::string text, color paint = color::none);
};

/// "2026-11-23 20:15:01" in the host's time zone.
std::string time_text(std::chrono::system_clock::time_point x);

/// "2026-11-23T20:15:01Z", or null.
json_object
time_json(const std::optional<std::chrono::system_clock::time_point>& x);

/// "4.2 KiB"
std::string size_text(std::uint64_t bytes);

/// Up to six significant digits; NaN and infinities as words.
std::string number_text(double x);

/// *x* for JSON: the texts "NaN", "Infinity", "-Infinity" where it has none.
json_object number_json(double x);

/// *x* for JSON; null if it is empty.
json_object text_json(std::string_view x);

/// The metrics by name.
json_object metrics_json(const metrics& x);

} // namespace troupe::tool
