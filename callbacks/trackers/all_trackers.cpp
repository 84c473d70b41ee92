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
#include "troupe/runtime/text.hpp"

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

/// What an option takes whose value is of the type of *x*.
const char* type_name(const document& x) {
  return x.is_boolean()  ? "true or false"
         : x.is_number() ? "a number"
         : x.is_array()  ? "a list, as [\"a\"]"
         : x.is_object() ? "an object, as {\"a\":\"b\"}"
                         : "JSON";
}

/// *text* as a value like *like*; null if it is not one.
document parsed(const std::string& text, const document& like) {
  if (like.is_string())
    return text;
  auto value = json::parse(text);
  auto fits =
    value.is_number() ? like.is_number() : value.type() == like.type();
  return fits || (like.is_null() && !value.is_discarded()) ? value : document{};
}

const document& like_which(const document& defaults, const document& in_folder,
                           const std::string& name) {
  return defaults.contains(name) ? defaults[name] : in_folder[name];
}

/// `ec::invalid_argument` if *tracker* does not have the options *given*, or
/// they cannot have these values.
expected<void> check_given(const std::string& tracker, const document& defaults,
                           const document& in_folder,
                           const given_options& given) {
  for (auto& [name, text] : given) {
    if (!defaults.contains(name) && !in_folder.contains(name)) {
      auto known =
        joined(defaults.items(), ", ", [](auto& x) { return x.key(); });
      return failure(ec::invalid_argument,
                     concat("tracker ", tracker, " has no option ", name,
                            "; it has ", known));
    }
    auto& like = like_which(defaults, in_folder, name);
    auto value = parsed(text, like);
    if (value.is_null())
      return failure(ec::invalid_argument,
                     concat("option ", name, " of tracker ", tracker, " takes ",
                            type_name(like), ", not '", text, '\''));
    auto alone = document::object();
    alone[name] = value;
    if (auto made = make_sink(tracker, alone.dump()); !made)
      return failure(ec::invalid_argument, made.error().message);
  }
  return {};
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
  for (auto& [name, text] : given)
    chosen[name] = parsed(text, like_which(defaults, in_folder, name));
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
    auto defaults = document::parse(x->options());
    return json::read<document>(in_folder, "the options of tracker " + name,
                                [](const document& found) {
                                  if (!found.is_object())
                                    throw json::format_error{
                                      "they are not an object"};
                                  return found;
                                })
      .and_then([&](const document& found) {
        return check_given(name, defaults, found, given).map([&] {
          return choose(all_trackers().at(name).harmless, defaults, found,
                        given);
        });
      });
  });
}

} // namespace troupe::internal
