#include "troupe/callbacks/wandb/wandb_settings.hpp"

#include <sstream>

#include "troupe/callbacks/tracking/given_settings.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe::internal {

namespace {

constexpr std::size_t max_id = 64;
constexpr std::size_t max_netrc = 1024 * 1024;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> result;
  std::istringstream in{text};
  for (std::string part; std::getline(in, part, separator);)
    if (!part.empty())
      result.push_back(part);
  return result;
}

expected<wandb_mode> mode_of(const wandb_options& options) {
  if (options.mode)
    return *options.mode;
  auto name = environment_variable("WANDB_MODE");
  if (name.empty() || name == "online" || name == "run")
    return wandb_mode::online;
  if (name == "offline" || name == "dryrun")
    return wandb_mode::offline;
  if (name == "disabled")
    return wandb_mode::disabled;
  return failure(ec::invalid_config,
                 "WANDB_MODE is '" + name
                   + "', but must be online, offline or disabled");
}

expected<void> check_names(const wandb_run& x) {
  if (x.id.size() > max_id || x.id.find_first_of("/\\#?%: ") != x.id.npos)
    return failure(ec::invalid_config,
                   "W&B does not accept the run id '" + x.id
                     + "' (WANDB_RUN_ID or run_id): it has at most 64 "
                       "characters, none of / \\ # ? % : and blank");
  if (x.project.size() > 128
      || x.project.find_first_of("/\\#?%:") != x.project.npos)
    return failure(ec::invalid_config,
                   "W&B does not accept the project '" + x.project
                     + "' (WANDB_PROJECT or project): it has at most 128 "
                       "characters, none of / \\ # ? % :");
  return {};
}

expected<void> check_service(const wandb_options& options) {
  if (auto url = environment_variable("WANDB_BASE_URL"); !url.empty())
    TROUPE_TRY_VOID(given_server(url, "WANDB_BASE_URL"));
  return check_credential(
    first_of(options.api_key, environment_variable("WANDB_API_KEY")),
    "WANDB_API_KEY or api_key of W&B");
}

// What `wandb login` has saved for this user: the address of a service of one's
// own, perhaps a key.
std::string saved_setting(const std::string& name) {
  auto folder = environment_variable("WANDB_CONFIG_DIR");
  auto path = folder.empty() ? in_home(".config/wandb/settings")
                             : fs::path{folder} / "settings";
  return ini_section(path, "default")[name];
}

// The host of the service, as a netrc file names it.
std::string service_host() {
  auto url = first_of(environment_variable("WANDB_BASE_URL"),
                      saved_setting("base_url"), "https://api.wandb.ai");
  if (auto i = url.find("://"); i != url.npos)
    url.erase(0, i + 3);
  return url.substr(0, url.find_first_of(":/"));
}

bool is_in_netrc(const std::string& host) {
  for (auto& path : {fs::path{environment_variable("NETRC")}, in_home(".netrc"),
                     in_home("_netrc")}) {
    auto text = read_file(path, max_netrc);
    if (!text)
      continue;
    std::istringstream in{*text};
    std::string word, machine;
    while (in >> word)
      if (word == "machine")
        in >> machine;
      else if (word == "password" && machine == host)
        return true;
  }
  return false;
}

} // namespace

expected<wandb_settings> make_wandb_settings(const wandb_options& options,
                                             const tracked_run& run) {
  TROUPE_TRY(auto mode, mode_of(options));
  wandb_settings result;
  result.mode = mode;
  auto dir = first_of(options.dir.string(), environment_variable("WANDB_DIR"));
  TROUPE_TRY(auto root, given_folder(dir.empty() ? run.path.string() : dir,
                                     "WANDB_DIR or dir of W&B"));
  result.root = root / run_layout::wandb;
  if (auto ok = check_service(options); !ok && mode == wandb_mode::online)
    return tl::unexpected{ok.error()};
  auto& x = result.about;
  // The variable would be the id of all trials of a sweep.
  x.id =
    first_of(options.run_id,
             run.sweep ? "" : environment_variable("WANDB_RUN_ID"), run.id);
  x.project = first_of(options.project, run.project, run.experiment,
                       environment_variable("WANDB_PROJECT"), "uncategorized");
  x.entity = first_of(options.entity, environment_variable("WANDB_ENTITY"));
  x.name = first_of(options.name, run.display_name,
                    environment_variable("WANDB_NAME"), run.name);
  x.group = first_of(options.group, environment_variable("WANDB_RUN_GROUP"),
                     run.sweep ? run.sweep->name : "");
  x.job_type =
    first_of(options.job_type, environment_variable("WANDB_JOB_TYPE"),
             run.sweep ? "trial" : "");
  x.notes = first_of(options.notes, environment_variable("WANDB_NOTES"));
  x.tags = options.tags.empty() ? split(environment_variable("WANDB_TAGS"), ',')
                                : options.tags;
  x.host = run.tag("host");
  for (auto& [name, value] : run.config)
    x.config.push_back({name, wandb_config_json(value)});
  for (auto& [name, value] : run.tags)
    x.config.push_back({name.starts_with("troupe.") ? name : "troupe." + name,
                        wandb_json(value)});
  TROUPE_TRY_VOID(check_names(x));
  return result;
}

bool has_wandb_key(const wandb_options& options) {
  return !options.api_key.empty()
         || !environment_variable("WANDB_API_KEY").empty()
         || !environment_variable("WANDB_IDENTITY_TOKEN_FILE").empty()
         || !saved_setting("api_key").empty() || is_in_netrc(service_host());
}

} // namespace troupe::internal
