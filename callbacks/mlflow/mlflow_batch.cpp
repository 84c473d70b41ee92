#include "troupe/callbacks/mlflow/mlflow_batch.hpp"

#include <cmath>
#include <string_view>

#include "troupe/callbacks/encoding/text.hpp"

namespace troupe {

namespace {

void append_item(std::string& out, const mlflow_metric& x) {
  out += "{\"key\":";
  append_json(out, std::string_view{x.key});
  out += ",\"value\":";
  if (std::isnan(x.value))
    out += "\"NaN\"";
  else if (std::isinf(x.value))
    out += x.value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  else
    append_number(out, x.value);
  out += ",\"timestamp\":";
  append_number(out, x.time_ms);
  out += ",\"step\":";
  append_number(out, x.step);
  out += '}';
}

void append_item(std::string& out, const mlflow_pair& x) {
  out += "{\"key\":";
  append_json(out, std::string_view{x.key});
  out += ",\"value\":";
  append_json(out, std::string_view{x.value});
  out += '}';
}

/// At most *max_items* an object `{"run_id":…,"<field>":[…]}`.
template <class T>
std::vector<mlflow_body> bodies(const std::string& run_id, const char* field,
                                std::span<const T> items, std::size_t max_items,
                                std::size_t max_bytes) {
  constexpr std::string_view end = "]}";
  std::string begin = "{\"run_id\":";
  append_json(begin, std::string_view{run_id});
  begin.append(",\"").append(field).append("\":[");
  std::vector<mlflow_body> result;
  for (const auto& item : items) {
    std::string text;
    append_item(text, item);
    if (result.empty() || result.back().items == max_items
        || result.back().json.size() + 1 + text.size() + end.size()
             > max_bytes) {
      if (!result.empty())
        result.back().json += end;
      result.push_back({begin, 0});
    }
    auto& body = result.back();
    if (body.items > 0)
      body.json += ',';
    body.json += text;
    ++body.items;
  }
  if (!result.empty())
    result.back().json += end;
  return result;
}

} // namespace

std::vector<mlflow_body> metric_bodies(const std::string& run_id,
                                       std::span<const mlflow_metric> metrics,
                                       const mlflow_limits& limits) {
  return bodies(run_id, "metrics", metrics, limits.metrics, limits.bytes);
}

std::vector<mlflow_body> param_bodies(const std::string& run_id,
                                      std::span<const mlflow_pair> params,
                                      const mlflow_limits& limits) {
  return bodies(run_id, "params", params, limits.pairs, limits.bytes);
}

std::vector<mlflow_body> tag_bodies(const std::string& run_id,
                                    std::span<const mlflow_pair> tags,
                                    const mlflow_limits& limits) {
  return bodies(run_id, "tags", tags, limits.pairs, limits.bytes);
}

} // namespace troupe
