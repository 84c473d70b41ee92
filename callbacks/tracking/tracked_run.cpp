#include "troupe/callbacks/tracking/tracked_run.hpp"

#include <algorithm>
#include <array>
#include <ctime>
#include <iterator>
#include <limits>
#include <string>

#include "troupe/runtime/storage/json.hpp"
#include "troupe/runtime/sweep/sweep_store.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// Numbers that cereal writes as bare words, which JSON does not have. The
/// parser gets them as texts that begin with a control character.
constexpr std::array bare_words{json_words.nan, json_words.infinity,
                                json_words.minus_infinity};
constexpr char mark = '\1';

std::string without_bare_words(std::string_view text) {
  std::string result;
  auto in_text = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    auto rest = text.substr(i);
    auto word = std::ranges::find_if(bare_words, [&](std::string_view x) {
      return !in_text && rest.starts_with(x);
    });
    if (word != bare_words.end()) {
      result += concat(R"("\u0001)", *word, '"');
      i += word->size() - 1;
      continue;
    }
    if (in_text && text[i] == '\\' && i + 1 < text.size())
      result += text[i++];
    else if (text[i] == '"')
      in_text = !in_text;
    result += text[i];
  }
  return result;
}

metric_value value_of(const std::string& x) {
  if (x.starts_with(mark))
    if (auto value = json_words.value(std::string_view{x}.substr(1)))
      return *value;
  return x;
}

metric_value value_of(const json::document& x) {
  if (x.is_boolean())
    return x.get<bool>();
  if (x.is_number_integer())
    return x.get<std::int64_t>();
  if (x.is_number())
    return x.get<double>();
  if (x.is_string())
    return value_of(x.get_ref<const std::string&>());
  return "null";
}

void collect(const json::document& x, const std::string& name, metrics& out) {
  auto below = [&name](const std::string& inner) {
    return name.empty() ? inner : name + '/' + inner;
  };
  if (x.is_object())
    for (auto& [inner, value] : x.items())
      collect(value, below(inner), out);
  else if (x.is_array())
    for (std::size_t i = 0; i < x.size(); ++i)
      collect(x[i], below(std::to_string(i)), out);
  else if (!name.empty())
    out[name] = value_of(x);
}

/// The epoch if *text* is not a timestamp.
std::chrono::system_clock::time_point to_time(const std::string& text) {
  return parse_timestamp(text).value_or(
    std::chrono::system_clock::time_point{});
}

/// The sweep whose folder has that of the run. A tracker works without it, so
/// one that cannot be read counts as none.
std::optional<tracked_sweep> sweep_of(const fs::path& run_path) {
  tracked_sweep result;
  result.path = run_path.parent_path();
  auto found = read_sweep_description(result.path);
  if (!found)
    return std::nullopt;
  result.name = result.path.filename().string();
  result.id = found->id;
  result.start_time = to_time(found->begun);
  return result;
}

} // namespace

metrics config_values(std::string_view json) {
  // One text with invalid UTF-8 must not invalidate the others.
  auto document = json::parse(without_bare_words(utf8_text(json)));
  metrics result;
  if (!document.is_object())
    return result;
  // Troupe wraps a train loop's config in one name.
  auto inner = document.find("config");
  collect(inner != document.end() && document.size() == 1 ? *inner : document,
          {}, result);
  return result;
}

tracked_run describe_tracked_run(const run_description& x,
                                 const fs::path& run_path) {
  tracked_run result;
  result.name = x.name;
  result.path = run_path;
  result.id = x.id;
  result.config = config_values(x.config);
  result.tags = {{"troupe.run_uid", x.id},
                 {"troupe.storage_path", run_path.string()},
                 {"troupe.version", x.troupe},
                 {"user", x.user},
                 {"host", x.host},
                 {"program", x.program}};
  result.start_time = to_time(x.begun);
  result.sweep = sweep_of(run_path);
  return result;
}

} // namespace troupe::internal
