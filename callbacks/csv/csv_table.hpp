#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <vector>

#include "troupe/callbacks/encoding/record_file.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/metrics/metrics.hpp"

namespace troupe::csv {

/// A table in a CSV file, which gains rows, and columns at its right end.
///
/// The file is a whole table at any time, but for a row that is just being
/// written when the process dies. After an error it is opened again.
class table {
public:
  /// Opens the file *path* and cuts off all but its first *known_rows* rows; if
  /// there are fewer, they stay. A file of which nothing is known is kept as
  /// `<path>.1`, or the next number that is free, and another one is begun.
  /// Once *over* was asked to stop, nothing is changed any more.
  static expected<table> open(const fs::path& path,
                              std::optional<std::uint64_t> known_rows,
                              const std::stop_token& over);

  /// Adds those of *names* that are new. A file with rows is rewritten
  /// beside the old one, cells that are missing are empty, and takes its place.
  expected<void> add_columns(const std::vector<std::string>& names);

  /// Adds *rows*, each a value for some of the columns, with one write; durable
  /// on return. None of them is in the file after an error.
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
  expected<record_file> write_anew(std::size_t columns_before) const;
  std::string header() const;

  record_file file_;
  std::stop_token over_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, std::size_t> columns_; // name to place
  std::uint64_t rows_ = 0;
};

} // namespace troupe::csv
