#include "troupe/callbacks/csv/csv_table.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal::csv {

namespace {

void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  for (;;) {
    auto quote = text.find('"');
    append_utf8(out, text.substr(0, quote));
    if (quote == text.npos)
      break;
    out += "\"\"";
    text.remove_prefix(quote + 1);
  }
  out += '"';
}

constexpr std::size_t chunk_size = 1 << 16; // bytes read or written at once

// Calls *take* with successive pieces of the file until it returns false or
// *size* bytes were read.
template <class Take>
expected<void> read_chunks(const fs::path& path, std::uint64_t size,
                           Take take) {
  TROUPE_TRY(auto file, open_file(path, O_RDONLY, "open"));
  std::string buffer(chunk_size, '\0');
  while (size > 0) {
    auto wanted = std::min<std::uint64_t>(size, buffer.size());
    auto count =
      uninterrupted([&] { return ::read(file.get(), buffer.data(), wanted); });
    if (count < 0)
      return tl::unexpected{storage_error("read", path, errno)};
    size -= static_cast<std::uint64_t>(count);
    if (count == 0
        || !take(
          std::string_view{buffer.data(), static_cast<std::size_t>(count)}))
      break;
  }
  return {};
}

fs::path new_name(fs::path path) {
  path += ".new";
  return path;
}

} // namespace

void append_name(std::string& out, std::string_view name) {
  // Without quotes, many readers drop a blank at either end.
  if (name.find_first_of("\",\r\n") != name.npos || name.starts_with(' ')
      || name.ends_with(' '))
    append_quoted(out, name);
  else
    append_utf8(out, name);
}

void append_value(std::string& out, const metric_value& x) {
  append_scalar(
    out, x.variant(), [&](double number) { append_plain(out, number); },
    [&](std::string_view text) { append_quoted(out, text); });
}

std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> result(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    auto c = line[i];
    if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      result.back() += line[++i]; // an escaped quote
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      result.emplace_back();
    } else {
      result.back() += c;
    }
  }
  return result;
}

expected<table> table::open(const fs::path& path,
                            std::optional<std::uint64_t> known_rows,
                            const std::stop_token& over) {
  TROUPE_TRY(auto file, known_rows ? record_file::open(path, over)
                                   : record_file::open_new(path, over));
  ::unlink(new_name(path).c_str()); // left by a crash
  table result{std::move(file), over};
  if (known_rows)
    TROUPE_TRY_VOID(result.recover(*known_rows));
  return result;
}

// Counts rows: a size in bytes would change with the header.
expected<void> table::recover(std::uint64_t known_rows) {
  line_scanner scanner;
  std::string header;
  std::uint64_t at = 0, end = 0, lines = 0;
  auto scan = [&](std::string_view chunk) {
    for (auto c : chunk) {
      ++at;
      if (lines == 0)
        header += c;
      if (!scanner.ends_line(c))
        continue;
      end = at;
      if (lines++ == known_rows)
        return false;
    }
    return true;
  };
  TROUPE_TRY_VOID(read_chunks(file_.path(), file_.size(), scan));
  if (lines > 0) {
    header.pop_back();
    names_ = cells_of(header);
    for (std::size_t i = 0; i < names_.size(); ++i)
      columns_.emplace(names_[i], i);
    rows_ = lines - 1;
  }
  return file_.cut(end);
}

std::string table::header() const {
  std::string result;
  for (auto& name : names_) {
    if (!result.empty())
      result += ',';
    append_name(result, name);
  }
  result += '\n';
  return result;
}

expected<void> table::add_columns(const std::vector<std::string>& names) {
  auto before = names_.size();
  for (auto& name : names)
    if (columns_.emplace(name, names_.size()).second)
      names_.push_back(name);
  if (names_.size() == before || file_.size() == 0)
    return {};
  return rewritten(before).map(
    [&](record_file file) { file_ = std::move(file); });
}

expected<record_file> table::rewritten(std::size_t columns_before) const {
  const auto& path = file_.path();
  auto temporary = new_name(path);
  TROUPE_TRY(auto file, record_file::open(temporary, over_));
  const std::string missing(names_.size() - columns_before, ',');
  line_scanner lines;
  bool in_header = true;
  auto out = header();
  expected<void> written;
  auto copy = [&](std::string_view chunk) {
    for (auto c : chunk) {
      auto ends = lines.ends_line(c);
      if (ends && !in_header)
        out += missing;
      if (!in_header)
        out += c;
      in_header = in_header && !ends;
    }
    written = file.append(out);
    out.clear();
    return written.has_value();
  };
  auto done = read_chunks(path, file_.size(), copy)
                .and_then([&] { return written; })
                .and_then([&] { return file.commit(); })
                .and_then([&] { return may_write(over_, path); });
  if (done && ::rename(temporary.c_str(), path.c_str()) != 0)
    done = tl::unexpected{storage_error("replace", path, errno)};
  if (!done) {
    if (may_write(over_, path)) // Otherwise it may belong to another driver.
      ::unlink(temporary.c_str());
    return tl::unexpected{done.error()};
  }
  failpoint("csv.replaced");
  return sync_folder(path.parent_path()).and_then([&] {
    return record_file::open(path, over_);
  });
}

expected<void> table::append(const std::vector<metrics>& rows) {
  std::string out;
  if (file_.size() == 0 && !names_.empty())
    out = header();
  std::vector<const metric_value*> cells(names_.size());
  for (auto& row : rows) {
    std::fill(cells.begin(), cells.end(), nullptr);
    for (auto& [name, value] : row)
      if (auto i = columns_.find(name); i != columns_.end())
        cells[i->second] = &value;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (i > 0)
        out += ',';
      if (cells[i])
        append_value(out, *cells[i]);
    }
    out += '\n';
  }
  auto done = file_.append(out).and_then([&] { return file_.commit(); });
  if (done)
    rows_ += rows.size();
  return done;
}

} // namespace troupe::internal::csv
