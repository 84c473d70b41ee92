#include "troupe/callbacks/tracking/config_values.hpp"

#include <string>

#include "troupe/runtime/storage/json_reader.hpp"

namespace troupe {

namespace {

metric_value value_of(const json::document& x) {
  if (x.is_boolean())
    return x.get<bool>();
  if (x.is_number_integer())
    return x.get<std::int64_t>();
  if (x.is_number())
    return x.get<double>();
  if (x.is_string())
    return x.get<std::string>();
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

} // namespace

metrics config_values(std::string_view json) {
  auto document = json::document::parse(json, nullptr, false);
  metrics result;
  if (!document.is_object())
    return result;
  // A train loop's config has one name of ours around it.
  auto inner = document.find("config");
  collect(inner != document.end() && document.size() == 1 ? *inner : document,
          {}, result);
  return result;
}

} // namespace troupe
