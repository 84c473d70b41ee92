#include "troupe/callbacks/trackers/all_trackers.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <map>
#include <string_view>

#include "troupe/callbacks/comet/comet_sink.hpp"
#include "troupe/callbacks/csv/csv_sink.hpp"
#include "troupe/callbacks/json_lines/result_json_sink.hpp"
#include "troupe/callbacks/mlflow/mlflow_sink.hpp"
#include "troupe/callbacks/prometheus/prometheus_sink.hpp"
#include "troupe/callbacks/report_page/report_page_sink.hpp"
#include "troupe/callbacks/tensorboard/tensorboard_sink.hpp"
#include "troupe/callbacks/tracking/option_fields.hpp"
#include "troupe/callbacks/tracking/sink_thread.hpp"
#include "troupe/callbacks/wandb/wandb_sink.hpp"
#include "troupe/runtime/process/secrets.hpp"
#include "troupe/runtime/storage/json.hpp"

namespace troupe::internal {

namespace {

using maker = std::unique_ptr<sink> (*)(const std::string&);

const std::map<std::string_view, maker>& makers() {
  static const std::map<std::string_view, maker> result{
    {"comet", sink_from_json<comet_sink>},
    {"csv", sink_from_json<csv_sink>},
    {"mlflow", sink_from_json<mlflow_sink>},
    {"prometheus", sink_from_json<prometheus_sink>},
    {"report_page", make_report_page_sink},
    {"result_json", sink_from_json<result_json_sink>},
    {"tensorboard", sink_from_json<tensorboard_sink>},
    {"wandb", sink_from_json<wandb_sink>},
  };
  return result;
}

using json::document;

/// Options that decide what is shown and how. `file` is a name in the run's
/// folder: `csv_sink::check` refuses any other.
constexpr std::array<std::string_view, 25> harmless{
  "console",
  "entity",
  "experiment",
  "experiment_id",
  "experiment_key",
  "file",
  "finish_timeout_s",
  "grace_s",
  "group",
  "hparams_metrics",
  "job_type",
  "max_metrics",
  "mode",
  "name",
  "non_finite",
  "notes",
  "project",
  "ranks",
  "run_id",
  "run_name",
  "spelling",
  "system_stats",
  "tags",
  "upload_checkpoints",
  "workspace",
};

// As JSON of ASCII characters: a folder must not control a terminal.
std::string shown(const std::string& name, document value) {
  if (value.is_string())
    if (auto text = value.get<std::string>(); text.find("://") != text.npos)
      value = shown_url(text);
  return name + '='
         + value.dump(-1, ' ', true, document::error_handler_t::replace);
}

document parsed(const std::string& text, const document& like) {
  return like.is_string() ? document(text) : document::parse(text);
}

folder_options choose(const document& defaults, const document& in_folder,
                      const given_options& given) {
  folder_options result;
  auto chosen = document::object();
  for (auto& [name, value] : in_folder.items()) {
    auto is_default = defaults.contains(name) && defaults[name] == value;
    if (is_default || given.contains(name))
      continue;
    if (std::ranges::find(harmless, name) == harmless.end()) {
      result.unconfirmed.push_back(shown(name, value));
      continue;
    }
    chosen[name] = value;
    result.taken.push_back(shown(name, value));
  }
  for (auto& [name, text] : given) {
    if (!defaults.contains(name) && !in_folder.contains(name))
      throw json::format_error{"there is no option " + name};
    chosen[name] =
      parsed(text, defaults.contains(name) ? defaults[name] : in_folder[name]);
  }
  result.options = chosen.dump();
  return result;
}

} // namespace

expected<std::unique_ptr<sink>> make_sink(const std::string& name,
                                          const std::string& options) {
  auto found = makers().find(name);
  if (found == makers().end() || !is_in_troupe_sync(name))
    return failure(ec::unsupported, "there is no tracker called " + name);
  try {
    return found->second(options);
  } catch (const std::exception& x) {
    return failure(ec::unsupported, "the options of tracker " + name
                                      + " cannot be read: " + x.what());
  }
}

expected<folder_options> choose_options(const std::string& name,
                                        const std::string& in_folder,
                                        const given_options& given) {
  return make_sink(name, "{}").and_then([&](const std::unique_ptr<sink>& x) {
    auto defaults = x->options();
    return json::read<folder_options>(
      in_folder, "the options of tracker " + name, [&](const document& found) {
        if (!found.is_object())
          throw json::format_error{"they are not an object"};
        return choose(document::parse(defaults), found, given);
      });
  });
}

} // namespace troupe::internal
