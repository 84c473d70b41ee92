#include "troupe/callbacks/comet/comet_settings.hpp"

#include <algorithm>
#include <cctype>

#include "troupe/callbacks/tracking/given_settings.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe::internal {

namespace {

// Comet's own variable holds the address for its Python client.
std::string host_of(std::string url) {
  while (url.ends_with('/'))
    url.pop_back();
  constexpr std::string_view client = "/clientlib";
  if (url.ends_with(client))
    url.resize(url.size() - client.size());
  return url;
}

} // namespace

expected<comet_settings> make_comet_settings(const comet_options& options,
                                             const tracked_run& run) {
  auto config = in_home(".comet.config");
  auto file = ini_section(config, "comet");
  comet_settings x;
  x.api_key = first_of(options.api_key, environment_variable("COMET_API_KEY"),
                       file["api_key"]);
  x.workspace =
    first_of(options.workspace, environment_variable("COMET_WORKSPACE"),
             file["workspace"]);
  x.project = first_of(options.project, run.project, run.experiment,
                       environment_variable("COMET_PROJECT_NAME"),
                       file["project_name"], "general");
  x.name = first_of(options.name, run.display_name, run.name);
  // The variable would be the key of all trials of a sweep.
  auto known =
    first_of(options.experiment_key,
             run.sweep ? "" : environment_variable("COMET_EXPERIMENT_KEY"));
  x.is_known = !known.empty();
  x.experiment_key = first_of(known, run.id);
  auto directory = first_of(options.offline_directory.string(),
                            environment_variable("COMET_OFFLINE_DIRECTORY"),
                            file["offline_directory"]);
  TROUPE_TRY(auto folder,
             directory.empty()
               ? run.path / run_layout::comet
               : given_folder(directory, "COMET_OFFLINE_DIRECTORY or "
                                         "offline_directory of Comet"));
  x.offline_directory = std::move(folder);
  TROUPE_TRY(auto url,
             given_server(host_of(first_of(
                            given_address(options.url, "COMET_URL_OVERRIDE"),
                            file["url_override"], "https://www.comet.com")),
                          "COMET_URL_OVERRIDE or url of Comet"));
  x.url = std::move(url);
  TROUPE_TRY_VOID(
    check_credential(x.api_key, "COMET_API_KEY or api_key of Comet"));
  x.mode = options.mode.value_or(x.api_key.empty() ? comet_mode::offline
                                                   : comet_mode::online);
  auto size = x.experiment_key.size();
  auto is_plain = std::ranges::all_of(
    x.experiment_key, [](unsigned char c) { return std::isalnum(c); });
  if (size < 32 || size > 50 || !is_plain)
    return failure(ec::invalid_config,
                   "Comet does not accept the experiment key '"
                     + x.experiment_key
                     + "' (COMET_EXPERIMENT_KEY or experiment_key): it has 32 "
                       "to 50 letters and digits");
  if (x.mode == comet_mode::online && x.api_key.empty())
    return failure(ec::invalid_config,
                   "Comet needs COMET_API_KEY, or api_key in "
                     + (config.empty() ? "~/.comet.config" : config.string())
                     + "; the mode offline needs none");
  return x;
}

} // namespace troupe::internal
