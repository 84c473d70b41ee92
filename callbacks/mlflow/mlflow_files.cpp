#include "troupe/callbacks/mlflow/mlflow_files.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <optional>
#include <set>
#include <sstream>
#include <string_view>

#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/storage/append_file.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/file_copy.hpp"
#include "troupe/runtime/storage/json.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

constexpr std::size_t max_meta_bytes = 1024 * 1024;
constexpr std::size_t max_metric_file = std::size_t{1} << 40;

// Decodes a scalar on one line.
std::string scalar_text(const std::string& x) {
  if (x.size() < 2)
    return x;
  if (x.front() == '"') { // As we write it.
    auto text = json::parse(x);
    return text.is_string() ? text.get<std::string>() : x;
  }
  if (x.front() != '\'' || x.back() != '\'')
    return x;
  std::string result;
  for (std::size_t i = 1; i + 1 < x.size(); ++i) {
    result += x[i];
    if (x[i] == '\'') // Written twice.
      ++i;
  }
  return result;
}

expected<unique_fd> open_metric(const fs::path& path) {
  boost::system::error_code failed;
  fs::create_directories(path.parent_path(), failed);
  if (failed)
    return tl::unexpected{
      storage_error("make", path.parent_path(), failed.value())};
  return open_file(path, append_file::open_flags() | O_CREAT, "open");
}

// Appends *lines* behind the first *known* bytes, or all. Returns the new size.
expected<std::uint64_t> append(unique_fd to, const fs::path& path,
                               const std::string& lines,
                               std::optional<std::uint64_t> known = {}) {
  TROUPE_TRY(auto file, append_file::take(std::move(to), path));
  if (known)
    TROUPE_TRY_VOID(file.cut(*known));
  if (auto done = file.append(lines); !done) {
    boost::system::error_code failed;
    if (file.size() == 0) // MLflow cannot read an empty file.
      fs::remove(path, failed);
    return tl::unexpected{std::move(done).error()};
  }
  failpoint("mlflow.appended");
  return file.size();
}

// The complete lines of *lines* that *there* lacks. If *there* ends within the
// first of them, only the rest of that line.
std::string missing_lines(std::string_view there, std::string_view lines) {
  std::set<std::string_view> known;
  for (auto end = there.find('\n'); end != there.npos; end = there.find('\n')) {
    known.insert(there.substr(0, end));
    there.remove_prefix(end + 1);
  }
  std::string result;
  for (auto end = lines.find('\n'); end != lines.npos; end = lines.find('\n')) {
    if (!known.contains(lines.substr(0, end)))
      result += lines.substr(0, end + 1);
    lines.remove_prefix(end + 1);
  }
  if (result.empty() || there.empty())
    return result;
  // Otherwise *there* ends with someone's whole line without a line end.
  return result.starts_with(there) ? result.substr(there.size())
                                   : '\n' + result;
}

} // namespace

std::map<std::string, std::string> read_meta(const fs::path& path) {
  std::map<std::string, std::string> result;
  std::istringstream in{read_file(path, max_meta_bytes).value_or("")};
  for (std::string line; std::getline(in, line);)
    if (auto colon = line.find(": "); colon != line.npos)
      result[line.substr(0, colon)] = scalar_text(line.substr(colon + 2));
  return result;
}

std::string yaml_text(const std::string& text) {
  std::string result;
  append_json_string(result, text);
  return result;
}

expected<std::uint64_t> append_metric_lines(const fs::path& path,
                                            std::uint64_t known,
                                            const std::string& lines) {
  TROUPE_TRY(auto file, open_metric(path));
  return append(std::move(file), path, lines, known);
}

expected<std::uint64_t> add_metric_lines(const fs::path& path,
                                         std::uint64_t known,
                                         const std::string& lines) {
  TROUPE_TRY(auto file, open_metric(path));
  (void) ::flock(file.get(), LOCK_EX); // If the file system has locks.
  auto size = static_cast<std::uint64_t>(::lseek(file.get(), 0, SEEK_END));
  auto missing = lines;
  if (size > known) {
    TROUPE_TRY(auto there, read_range(file, path, known, size - known));
    missing = missing_lines(there, lines);
  }
  if (missing.empty())
    return known;
  return append(std::move(file), path, missing);
}

expected<std::uint64_t> cut_metric_lines(const fs::path& path,
                                         std::uint64_t size) {
  TROUPE_TRY(auto text, read_file(path, max_metric_file));
  auto whole = text.substr(0, size).rfind('\n');
  auto keep = whole == text.npos ? 0 : whole + 1;
  boost::system::error_code failed;
  if (keep == 0)
    fs::remove(path, failed);
  else if (keep < text.size())
    TROUPE_TRY_VOID(append_file::open(path).and_then(
      [&](append_file file) { return file.cut(keep); }));
  if (failed)
    return tl::unexpected{storage_error("cut", path, failed.value())};
  return keep;
}

sink_result copy_artifact(const fs::path& file, const fs::path& target) {
  auto ok = copy_file(file, target, copy_sync::yes);
  if (ok)
    return {};
  // A file that can never be copied must not hold up other records.
  auto lasts = ok.error().code == ec::invalid_argument;
  return sink_fails(lasts ? sink_failure::kind::rejected
                          : sink_failure::kind::transient,
                    ok.error());
}

} // namespace troupe::internal
