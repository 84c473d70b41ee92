#include "troupe/callbacks/wandb/rank_console.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe {

namespace {

constexpr std::uint64_t max_read = 256 * 1024;

} // namespace

std::vector<std::string> read_console(const fs::path& path,
                                      std::uint64_t& from) {
  std::vector<std::string> result;
  auto file = open_file(path, O_RDONLY, "read");
  struct stat found {};
  if (!file || ::fstat(file->get(), &found) != 0 || !S_ISREG(found.st_mode))
    return result;
  auto size = static_cast<std::uint64_t>(found.st_size);
  auto begin = std::min(from, size);
  auto skip = size - begin > max_read;
  if (skip)
    begin = size - max_read;
  std::string text(size - begin, '\0');
  auto count =
    ::pread(file->get(), text.data(), text.size(), static_cast<off_t>(begin));
  text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  std::size_t at = 0;
  if (skip) {
    // The first line is cut most likely; one without an end is all there is.
    auto end = text.find('\n');
    at = end == text.npos ? 0 : end + 1;
    result.push_back("[" + std::to_string(begin + at - from)
                     + " bytes are left out; all is in " + path.string()
                     + "]\n");
  }
  for (auto end = text.find('\n', at); end != text.npos;
       end = text.find('\n', at)) {
    result.push_back(text.substr(at, end + 1 - at));
    at = end + 1;
  }
  if (skip && at == 0) {
    result.push_back(text + '\n');
    at = text.size();
  }
  from = begin + at;
  return result;
}

} // namespace troupe
