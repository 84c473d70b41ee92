#include "troupe/callbacks/trackers/all_trackers.hpp"

#include <algorithm>
#include <concepts>
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
#include "troupe/callbacks/wandb/wandb_sink.hpp"
#include "troupe/runtime/process/secrets.hpp"
#include "troupe/runtime/storage/json.hpp"

namespace troupe::internal {

namespace {

struct known_tracker {
  std::unique_ptr<sink> (*make)(const std::string& options);
  std::vector<std::string_view> harmless;
};

template <std::derived_from<built_in_sink> Sink>
known_tracker known() {
  return {sink_from_json<Sink>,
          harmless_options<typename Sink::options_type>()};
}

const std::map<std::string_view, known_tracker>& all_trackers() {
  static const std::map<std::string_view, known_tracker> result{
    {"comet", known<comet_sink>()},
    {"csv", known<csv_sink>()},
    {"mlflow", known<mlflow_sink>()},
    {"prometheus", known<prometheus_sink>()},
    {"report_page", {make_report_page_sink, {}}},
    {"result_json", known<result_json_sink>()},
    {"tensorboard", known<tensorboard_sink>()},
    {"wandb", known<wandb_sink>()},
  };
  return result;
}

using json::document;

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

folder_options choose(const std::vector<std::string_view>& harmless,
                      const document& defaults, const document& in_folder,
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

bool has_tracker(const std::string& name) {
  return all_trackers().contains(name);
}

expected<std::unique_ptr<sink>> make_sink(const std::string& name,
                                          const std::string& options) {
  auto found = all_trackers().find(name);
  if (found == all_trackers().end())
    return failure(ec::unsupported, "there is no tracker called " + name);
  try {
    return found->second.make(options);
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
        return choose(all_trackers().at(name).harmless,
                      document::parse(defaults), found, given);
      });
  });
}

} // namespace troupe::internal
