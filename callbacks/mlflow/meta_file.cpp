#include "troupe/callbacks/mlflow/meta_file.hpp"

#include <sstream>

#include <nlohmann/json.hpp>

#include "troupe/callbacks/encoding/text.hpp"
#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe {

namespace {

constexpr std::size_t max_meta_bytes = 1024 * 1024;

/// The text that a scalar on one line stands for.
std::string scalar_text(const std::string& x) {
  if (x.size() < 2)
    return x;
  if (x.front() == '"') { // As we write it.
    auto json = nlohmann::json::parse(x, nullptr, false);
    return json.is_string() ? json.get<std::string>() : x;
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
  append_json(result, std::string_view{text});
  return result;
}

} // namespace troupe
