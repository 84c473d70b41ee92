#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/metrics/metrics.hpp"
#include "troupe/runtime/storage/append_file.hpp"

namespace troupe::internal::csv {

// The text format is RFC 4180 with lines that end in "\n", in UTF-8.

/// Appends a column's name, quoted if necessary.
void append_name(std::string& out, std::string_view name);

/// Appends a value: `true`, `false`, numbers exactly, `nan`, `inf`, `-inf`.
/// Texts are always quoted, so that no text looks like a number or an empty
/// cell.
void append_value(std::string& out, const metric_value& x);

/// The cells of one line, given without its line end.
std::vector<std::string> cells_of(std::string_view line);

/// Finds line ends in text that comes in pieces; a quoted one is part of a
/// cell.
class line_scanner {
public:
  /// Whether *c*, the next character, ends a line.
  bool ends_line(char c) noexcept {
    quoted_ ^= c == '"';
    return c == '\n' && !quoted_;
  }

private:
  bool quoted_ = false;
};

/// A table in a CSV file to which rows and columns are added.
///
/// The file is a complete table at any time, except for a row that was being
/// written when the process died. After an error the table must be opened
/// again.
class table {
public:
  /// Opens the file *path* and cuts off all but its first *known_rows* rows. If
  /// the number is unknown, an existing file is renamed to `<path>.1`, or the
  /// next free number, and a new one is started. Changes nothing once a stop is
  /// requested through *over*.
  static expected<table> open(const fs::path& path,
                              std::optional<std::uint64_t> known_rows,
                              const std::stop_token& over);

  /// Adds those of *names* that are new. A file with rows is replaced by a new
  /// one, in which the missing cells are empty.
  expected<void> add_columns(const std::vector<std::string>& names);

  /// Adds *rows*, each with values for some of the columns, durably and with
  /// one write. After an error, none of them is in the file.
  expected<void> append(const std::vector<metrics>& rows);

  bool has_column(const std::string& name) const {
    return columns_.contains(name);
  }

  /// Rows in the file, without the header.
  std::uint64_t rows() const noexcept { return rows_; }

private:
  table(record_file file, std::stop_token over)
    : file_(std::move(file)), over_(std::move(over)) {}

  expected<void> recover(std::uint64_t known_rows);
  expected<record_file> rewritten(std::size_t columns_before) const;
  std::string header() const;

  record_file file_;
  std::stop_token over_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, std::size_t> columns_; // name to place
  std::uint64_t rows_ = 0;
};

} // namespace troupe::internal::csv
