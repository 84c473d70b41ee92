#include "troupe/callbacks/wandb/rank_console.hpp"

#include <algorithm>
#include <fstream>

namespace troupe {

namespace {

constexpr std::uint64_t max_read = 256 * 1024;

} // namespace

std::vector<std::string> read_console(const fs::path& path,
                                      std::uint64_t& from) {
  std::vector<std::string> result;
  std::ifstream in{path.string(), std::ios::binary | std::ios::ate};
  if (!in || in.tellg() < 0)
    return result;
  auto size = static_cast<std::uint64_t>(in.tellg());
  auto begin = std::min(from, size);
  auto skip = size - begin > max_read;
  if (skip)
    begin = size - max_read;
  std::string text(size - begin, '\0');
  in.seekg(static_cast<std::streamoff>(begin));
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
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
