#include "troupe/callbacks/tracking/folder_options.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "troupe/callbacks/tracking/make_sink.hpp"
#include "troupe/runtime/storage/json_reader.hpp"

namespace troupe {

namespace {

using json::document;

/// Options that say what is shown and how. `file` is a name in the run's
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

std::string shown(const std::string& name, const document& value) {
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

expected<folder_options> choose_options(const std::string& name,
                                        const std::string& in_folder,
                                        const given_options& given) {
  return make_sink(name, "{}").and_then([&](const std::unique_ptr<sink>& x) {
    auto defaults = x->options();
    return json::read<folder_options>(
      in_folder, "the options of tracker " + name, [&](const document& found) {
        if (!found.is_object())
          throw json::format_error{"they are no object"};
        return choose(document::parse(defaults), found, given);
      });
  });
}

} // namespace troupe
