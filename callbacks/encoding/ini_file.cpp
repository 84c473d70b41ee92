#include "troupe/callbacks/encoding/ini_file.hpp"

#include <algorithm>
#include <sstream>

#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe {

namespace {

constexpr std::size_t max_ini = 1024 * 1024;

std::string trimmed(const std::string& x) {
  constexpr auto blanks = " \t\r";
  auto first = x.find_first_not_of(blanks);
  if (first == x.npos)
    return {};
  return x.substr(first, x.find_last_not_of(blanks) - first + 1);
}

} // namespace

std::map<std::string, std::string> ini_section(const fs::path& path,
                                               const std::string& section) {
  std::map<std::string, std::string> result;
  std::istringstream in{read_file(path, max_ini).value_or(std::string{})};
  auto inside = false;
  for (std::string line; std::getline(in, line);) {
    line = trimmed(line);
    if (line.empty() || line.front() == '#' || line.front() == ';')
      continue;
    if (line.front() == '[') {
      inside = line == "[" + section + "]";
      continue;
    }
    auto equals = line.find_first_of("=:");
    if (!inside || equals == line.npos)
      continue;
    auto name = trimmed(line.substr(0, equals));
    std::ranges::transform(name, name.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    result[name] = trimmed(line.substr(equals + 1));
  }
  return result;
}

} // namespace troupe
