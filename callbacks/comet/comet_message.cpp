#include "troupe/callbacks/comet/comet_message.hpp"

#include <algorithm>
#include <set>

#include "troupe/callbacks/encoding/text.hpp"
#include "troupe/callbacks/tracking/run_files.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/unix_time.hpp"

namespace troupe::internal {

namespace {

using message_kind = comet_message::kind;

expected<std::vector<comet_message>> assets_of(const logged_artifact& x,
                                               std::int64_t time_ms) {
  std::vector<comet_message> result;
  TROUPE_TRY(auto files, files_of(x));
  for (auto& file : files)
    result.push_back({message_kind::asset,
                      std::move(file.name),
                      {},
                      std::nullopt,
                      time_ms,
                      std::move(file.path)});
  return result;
}

metrics buckets_of(const logged_histogram& x) {
  metrics result{{"min", x.min}, {"max", x.max}, {"sum", x.sum}};
  // The journal may be damaged or from another program, with fewer of one.
  auto buckets = std::min(x.limits.size(), x.counts.size());
  for (std::size_t i = 0; i < buckets; ++i) {
    result[concat("limits/", i)] = x.limits[i];
    result[concat("counts/", i)] = x.counts[i];
  }
  return result;
}

} // namespace

metric_value comet_value(const metric_value& value) {
  if (auto flag = std::get_if<bool>(&value.variant()))
    return *flag ? 1 : 0;
  return value;
}

expected<std::vector<comet_message>>
comet_messages::of(const tracker_record& record) {
  auto time = unix_ms(record.time);
  std::vector<comet_message> result;
  auto& content = record.content;
  if (auto row = std::get_if<journaled_batch>(&content)) {
    add_values(result, values_of(*row, options_.ranks),
               static_cast<std::int64_t>(row->index), time);
  } else if (auto logged = std::get_if<logged_metrics>(&content)) {
    add_values(result, logged->values, logged->step, time);
  } else if (auto params = std::get_if<logged_params>(&content)) {
    return parameters(params->values, time);
  } else if (auto text = std::get_if<logged_text>(&content)) {
    add_other(result, text->name, text->text, time);
  } else if (auto image = std::get_if<logged_image>(&content)) {
    TROUPE_TRY(auto found, look_up(image->file));
    if (!found.is_file())
      return tl::unexpected{storage_error("read", image->file, ENOENT)};
    result.push_back({message_kind::asset,
                      image->name,
                      {},
                      image->step,
                      time,
                      image->file,
                      true});
  } else if (auto histogram = std::get_if<logged_histogram>(&content)) {
    std::string json;
    append_json(json, buckets_of(*histogram));
    result.push_back({message_kind::asset, histogram->name + ".json", json,
                      histogram->step, time});
  } else if (auto artifact = std::get_if<logged_artifact>(&content)) {
    return assets_of(*artifact, time);
  } else if (std::holds_alternative<attempt_record>(content)) {
    add_other(result, "troupe.attempt", std::to_string(record.attempt), time);
  }
  return result;
}

std::vector<comet_message> comet_messages::parameters(const metrics& values,
                                                      std::int64_t time_ms) {
  std::vector<comet_message> result;
  for (auto& [name, value] : values)
    result.push_back(
      {message_kind::parameter, name, value, std::nullopt, time_ms});
  return result;
}

void comet_messages::add_values(std::vector<comet_message>& to,
                                const metrics& values, std::int64_t step,
                                std::int64_t time_ms) {
  for (auto& [name, value] : values)
    if (auto text = std::get_if<std::string>(&value.variant()))
      add_other(to, name, *text, time_ms);
    else if (is_sent(options_.non_finite, value))
      to.push_back({message_kind::metric, name, value, step, time_ms});
}

void comet_messages::add_other(std::vector<comet_message>& to,
                               const std::string& name, const std::string& text,
                               std::int64_t time_ms) {
  if (auto known = others_.find(name);
      known != others_.end() && known->second == text)
    return;
  others_[name] = text;
  to.push_back({message_kind::other, name, text, std::nullopt, time_ms});
}

bool keep_latest_points(
  std::map<std::uint64_t, std::vector<comet_message>>& all,
  std::uint64_t last) {
  std::set<std::string> seen;
  std::size_t erased = 0;
  for (auto record = all.upper_bound(last); record != all.begin();)
    erased += std::erase_if((--record)->second, [&](const comet_message& x) {
      return x.what == message_kind::metric && !seen.insert(x.name).second;
    });
  return erased > 0;
}

} // namespace troupe::internal
