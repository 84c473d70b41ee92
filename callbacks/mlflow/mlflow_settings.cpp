#include "troupe/callbacks/mlflow/mlflow_settings.hpp"

#include <charconv>

#include "troupe/callbacks/encoding/percent.hpp"
#include "troupe/callbacks/mlflow/mlflow_names.hpp"
#include "troupe/callbacks/tracking/given_settings.hpp"
#include "troupe/callbacks/tracking/option_fields.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/json.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/unix_time.hpp"
#include "troupe/runtime/whole_number.hpp"

namespace troupe::internal {

namespace {

constexpr const char* address_name = "the tracking URI (MLFLOW_TRACKING_URI)";

bool is_true(const std::string& x) {
  return x == "true" || x == "True" || x == "1";
}

expected<mlflow_settings> tree_in(const std::string& path) {
  return given_folder(path, address_name).map([](fs::path folder) {
    mlflow_settings result;
    result.tree = std::move(folder);
    return result;
  });
}

// *address* without its user, if it is `host:port`, perhaps with a path; else
// empty.
std::string server_without_scheme(const std::string& address) {
  auto authority = address.substr(0, address.find('/'));
  auto host = authority.rfind('@') + 1; // npos + 1 is 0
  auto colon = authority.rfind(':');
  if (colon == authority.npos || colon <= host
      || !is_digits(authority.substr(colon + 1)))
    return {};
  return address.substr(host);
}

// `xyz:` at the begin of *address*, before any slash; else empty.
std::string scheme_with_colon(const std::string& address) {
  auto colon = address.find_first_of(":/");
  if (colon == 0 || colon == address.npos || address[colon] == '/')
    return {};
  return address.substr(0, colon + 1);
}

expected<mlflow_settings> tree_at(const std::string& address) {
  if (address.starts_with("file:")) {
    auto named = address.substr(5);
    if (named.starts_with("//localhost/"))
      named = named.substr(11);
    else if (named.starts_with("///"))
      named = named.substr(2);
    else if (named.starts_with("//"))
      return failure(ec::invalid_config,
                     "the tracking URI " + address
                       + " names a host: a file store is a local path");
    return tree_in(percent_decoded(named));
  }
  if (auto server = server_without_scheme(address); !server.empty())
    return failure(ec::invalid_config,
                   concat(address_name, " is '", server,
                          "': for a server write http://", server,
                          ", for a folder of that name ./", server));
  if (auto scheme = scheme_with_colon(address); !scheme.empty())
    return failure(ec::invalid_config,
                   concat(address_name, " begins with '", scheme,
                          "': the address of a server begins with http:// or "
                          "https://, that of a folder with file: or ./"));
  return tree_in(address);
}

expected<void> read_credentials(mlflow_settings& x) {
  x.http.user = environment_variable("MLFLOW_TRACKING_USERNAME");
  x.http.password = environment_variable("MLFLOW_TRACKING_PASSWORD");
  if (x.http.user.empty() && x.http.password.empty()) {
    auto saved = ini_section(in_home(".mlflow/credentials"), "mlflow");
    x.http.user = saved["mlflow_tracking_username"];
    x.http.password = saved["mlflow_tracking_password"];
  }
  x.http.token = environment_variable("MLFLOW_TRACKING_TOKEN");
  x.http.insecure_tls =
    is_true(environment_variable("MLFLOW_TRACKING_INSECURE_TLS"));
  x.http.ca_file = environment_variable("MLFLOW_TRACKING_SERVER_CERT_PATH");
  x.http.client_certificate =
    environment_variable("MLFLOW_TRACKING_CLIENT_CERT_PATH");
  return check_credential(x.http.user, "MLFLOW_TRACKING_USERNAME")
    .and_then([&] {
      return check_credential(x.http.password, "MLFLOW_TRACKING_PASSWORD");
    })
    .and_then(
      [&] { return check_credential(x.http.token, "MLFLOW_TRACKING_TOKEN"); });
}

expected<mlflow_settings> databricks_at(const std::string& address,
                                        const mlflow_options& options) {
  mlflow_settings result;
  result.databricks = true;
  auto named = address.starts_with("databricks://") ? address.substr(13) : "";
  auto profile = first_of(named, options.databricks_profile,
                          environment_variable("DATABRICKS_CONFIG_PROFILE"));
  fs::path file = first_of(options.databricks_config_file,
                           environment_variable("DATABRICKS_CONFIG_FILE"),
                           in_home(".databrickscfg").string());
  auto host = environment_variable("DATABRICKS_HOST");
  result.http.token = environment_variable("DATABRICKS_TOKEN");
  result.client_id = environment_variable("DATABRICKS_CLIENT_ID");
  result.client_secret = environment_variable("DATABRICKS_CLIENT_SECRET");
  auto complete = [&] {
    return !host.empty()
           && (!result.http.token.empty()
               || (!result.client_id.empty() && !result.client_secret.empty()));
  };
  auto section = profile.empty() ? std::string{"DEFAULT"} : profile;
  if (!named.empty() || !complete()) {
    auto saved = ini_section(file, section);
    host = saved["host"];
    result.http.token = saved["token"];
    result.client_id = saved["client_id"];
    result.client_secret = saved["client_secret"];
  }
  if (!complete()) {
    auto found = look_up(file);
    auto state = !found            ? concat(" (", found.error().message, ')')
                 : found->exists() ? std::string{}
                                   : ", which does not exist";
    return failure(
      ec::invalid_config,
      concat("no credentials for MLflow on Databricks: set DATABRICKS_HOST and "
             "DATABRICKS_TOKEN (or DATABRICKS_CLIENT_ID and "
             "DATABRICKS_CLIENT_SECRET), or have host and token under [",
             section, "] of ",
             file.empty() ? "~/.databrickscfg" : file.string(), state,
             " (DATABRICKS_CONFIG_FILE and DATABRICKS_CONFIG_PROFILE choose "
             "others)"));
  }
  TROUPE_TRY(
    auto server,
    given_server(host.find("://") == host.npos ? "https://" + host : host,
                 "the host of Databricks (DATABRICKS_HOST, or host in "
                   + file.string() + ")"));
  result.server = std::move(server);
  for (auto secret :
       {&result.http.token, &result.client_id, &result.client_secret})
    TROUPE_TRY_VOID(check_credential(*secret, "a credential of Databricks (of "
                                              "DATABRICKS_*, or in "
                                                + file.string() + ")"));
  return result;
}

expected<mlflow_settings> server_at(const std::string& address) {
  TROUPE_TRY(auto server, given_server(address, address_name));
  mlflow_settings result;
  result.server = std::move(server);
  TROUPE_TRY_VOID(read_credentials(result));
  result.workspace = environment_variable("MLFLOW_WORKSPACE");
  return result;
}

expected<mlflow_settings> settings_at(const std::string& address,
                                      const mlflow_options& options,
                                      const fs::path& run_path) {
  if (address.empty()) {
    mlflow_settings result;
    result.tree = run_path.parent_path() / run_layout::mlflow_tree;
    return result;
  }
  if (address == "databricks" || address.starts_with("databricks://"))
    return databricks_at(address, options);
  if (auto scheme = scheme_of(address); scheme == "http" || scheme == "https")
    return server_at(address);
  if (auto scheme = address.find("://");
      (scheme != address.npos && !address.starts_with("file:"))
      || address.starts_with("sqlite:"))
    return failure(ec::invalid_config,
                   "the tracking URI begins with "
                     + address.substr(0, address.find(':') + 1)
                     + " but only MLflow's server opens a database: start "
                       "`mlflow server --backend-store-uri ...` and give its "
                       "address in MLFLOW_TRACKING_URI");
  return tree_at(address);
}

// Longest name of an experiment, in bytes.
constexpr std::size_t max_experiment_name = 500;

std::string name_of(const mlflow_options& options, const tracked_run& run) {
  return first_of(options.run_name, run.display_name,
                  environment_variable("MLFLOW_RUN_NAME"), run.name);
}

/// The tags of MLFLOW_TAGS and of the options.
std::map<std::string, std::string> given_tags(const mlflow_options& options) {
  std::map<std::string, std::string> result;
  auto environment = json::parse(environment_variable("MLFLOW_TAGS"));
  if (environment.is_object())
    for (auto& [key, value] : environment.items())
      result[key] = value.is_string() ? value.get<std::string>() : value.dump();
  for (auto& [key, value] : options.tags)
    result[key] = value;
  return result;
}

std::string given_run_id(const mlflow_options& options) {
  return first_of(options.run_id, environment_variable("MLFLOW_RUN_ID"));
}

std::vector<mlflow_pair>
valid_tags(const std::map<std::string, std::string>& tags) {
  std::vector<mlflow_pair> result;
  for (auto& [key, value] : tags)
    if (!value.empty())
      result.push_back({clean_mlflow_name(key),
                        cut_mlflow_text(mlflow_text(value), max_mlflow_tag)});
  return result;
}

std::vector<mlflow_pair> tags_of(const mlflow_options& options,
                                 const tracked_run& run) {
  static const std::map<std::string, std::string> of_mlflow{
    {"user", "mlflow.user"},
    {"program", "mlflow.source.name"},
    {"git_commit", "mlflow.source.git.commit"},
    {"host", "troupe.host"}};
  std::map<std::string, std::string> tags{
    {"mlflow.source.type", "LOCAL"},
    {"troupe.run_uid", run.id},
    {"troupe.attempt", std::to_string(run.attempt)}};
  for (auto& [key, value] : run.tags) {
    auto i = of_mlflow.find(key);
    tags[i == of_mlflow.end() ? key : i->second] = value;
  }
  for (auto& [key, value] : given_tags(options))
    tags[key] = value;
  tags["mlflow.runName"] = name_of(options, run);
  return valid_tags(tags);
}

} // namespace

expected<mlflow_settings> resolve_mlflow(const mlflow_options& options,
                                         const fs::path& run_path) {
  TROUPE_TRY(auto result, settings_at(given_address(options.tracking_uri,
                                                    "MLFLOW_TRACKING_URI"),
                                      options, run_path));
  auto text = environment_variable("MLFLOW_HTTP_REQUEST_TIMEOUT");
  long seconds = 0;
  std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (seconds > 0)
    result.timeout = std::chrono::seconds{seconds};
  return result;
}

fs::path mlflow_home(const tracked_run& run) {
  return run.sweep ? run.sweep->path : run.path;
}

std::string to_json(mlflow_options x) {
  x.tracking_uri =
    first_of(x.tracking_uri, environment_variable("MLFLOW_TRACKING_URI"));
  x.databricks_config_file = first_of(
    x.databricks_config_file, environment_variable("DATABRICKS_CONFIG_FILE"));
  x.databricks_profile = first_of(
    x.databricks_profile, environment_variable("DATABRICKS_CONFIG_PROFILE"));
  return options_json(std::move(x));
}

mlflow_run describe_mlflow_run(const mlflow_options& options,
                               const tracked_run& run) {
  mlflow_run result;
  result.experiment_id = options.experiment_id;
  result.experiment = first_of(options.experiment, run.experiment, run.project);
  if (result.experiment.empty() && result.experiment_id.empty())
    result.experiment_id = environment_variable("MLFLOW_EXPERIMENT_ID");
  if (result.experiment.empty())
    result.experiment = first_of(environment_variable("MLFLOW_EXPERIMENT_NAME"),
                                 std::string{"Default"});
  result.experiment =
    std::string{cut_text(result.experiment, max_experiment_name)};
  result.name = name_of(options, run);
  result.uid = run.id;
  if (!run.sweep)
    result.run_id = given_run_id(options);
  result.start_ms = unix_ms(run.start_time);
  result.tags = tags_of(options, run);
  result.user = run.tag("user");
  return result;
}

std::optional<mlflow_run> describe_mlflow_parent(const mlflow_options& options,
                                                 const tracked_run& run) {
  auto given = given_tags(options);
  if (!run.sweep || given.contains(mlflow_parent_tag))
    return std::nullopt;
  auto result = describe_mlflow_run(options, run);
  result.name = run.sweep->name;
  result.uid = run.sweep->id;
  result.run_id = given_run_id(options);
  result.is_shared = true;
  result.start_ms = unix_ms(run.sweep->start_time);
  given.insert({{"mlflow.source.type", "LOCAL"},
                {"mlflow.runName", result.name},
                {"troupe.run_uid", result.uid},
                {"troupe.sweep", run.sweep->path.string()}});
  if (auto program = run.tag("program"); !program.empty())
    given.emplace("mlflow.source.name", program);
  if (!result.user.empty())
    given.emplace("mlflow.user", result.user);
  result.tags = valid_tags(given);
  return result;
}

} // namespace troupe::internal
