#include "troupe/callbacks/mlflow/mlflow_settings.hpp"

#include <charconv>
#include <cstdlib>

#include "troupe/callbacks/mlflow/ini_file.hpp"
#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe {

namespace {

fs::path home() {
  return variable("HOME");
}

bool is_true(const std::string& x) {
  return x == "true" || x == "True" || x == "1";
}

std::string without_user(const std::string& uri) {
  auto host = uri.find("://");
  if (host == uri.npos)
    return uri;
  host += 3;
  auto at = uri.substr(0, uri.find('/', host)).rfind('@');
  if (at == uri.npos || at < host)
    return uri;
  return uri.substr(0, host) + uri.substr(at + 1);
}

/// An option that came through `portable` has lost its user, which the variable
/// may still have.
std::string address_of(const mlflow_options& options) {
  auto from_environment = variable("MLFLOW_TRACKING_URI");
  if (options.tracking_uri.empty()
      || options.tracking_uri == without_user(from_environment))
    return from_environment;
  return options.tracking_uri;
}

std::string percent_decoded(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    const auto* digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size()
        && std::from_chars(digits, digits + 2, value, 16).ptr == digits + 2) {
      result += static_cast<char>(value);
      i += 2;
    } else {
      result += text[i];
    }
  }
  return result;
}

expected<mlflow_settings> tree_at(const std::string& address) {
  fs::path path = address;
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
    path = percent_decoded(named);
  }
  return absolute_path(path).map([](fs::path x) {
    mlflow_settings result;
    result.tree = std::move(x);
    return result;
  });
}

void read_credentials(mlflow_settings& x) {
  x.http.user = variable("MLFLOW_TRACKING_USERNAME");
  x.http.password = variable("MLFLOW_TRACKING_PASSWORD");
  if (x.http.user.empty() && x.http.password.empty()) {
    auto saved = ini_section(home() / ".mlflow" / "credentials", "mlflow");
    x.http.user = saved["mlflow_tracking_username"];
    x.http.password = saved["mlflow_tracking_password"];
  }
  x.http.token = variable("MLFLOW_TRACKING_TOKEN");
  x.http.insecure_tls = is_true(variable("MLFLOW_TRACKING_INSECURE_TLS"));
  x.http.ca_file = variable("MLFLOW_TRACKING_SERVER_CERT_PATH");
  x.http.client_certificate = variable("MLFLOW_TRACKING_CLIENT_CERT_PATH");
}

expected<mlflow_settings> databricks_at(const std::string& address,
                                        const mlflow_options& options) {
  mlflow_settings result;
  result.databricks = true;
  auto named = address.starts_with("databricks://") ? address.substr(13) : "";
  auto profile = first_of(named, options.databricks_profile,
                          variable("DATABRICKS_CONFIG_PROFILE"));
  fs::path file =
    first_of(options.databricks_config_file, variable("DATABRICKS_CONFIG_FILE"),
             (home() / ".databrickscfg").string());
  auto host = variable("DATABRICKS_HOST");
  result.http.token = variable("DATABRICKS_TOKEN");
  result.client_id = variable("DATABRICKS_CLIENT_ID");
  result.client_secret = variable("DATABRICKS_CLIENT_SECRET");
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
    auto state = !found            ? " (" + found.error().message + ")"
                 : found->exists() ? std::string{}
                                   : ", which does not exist";
    return failure(
      ec::invalid_config,
      "no credentials for MLflow on Databricks: set DATABRICKS_HOST and "
      "DATABRICKS_TOKEN (or DATABRICKS_CLIENT_ID and "
      "DATABRICKS_CLIENT_SECRET), or have host and token under ["
        + section + "] of " + file.string() + state
        + " (DATABRICKS_CONFIG_FILE and DATABRICKS_CONFIG_PROFILE choose "
          "others)");
  }
  while (host.ends_with('/'))
    host.pop_back();
  result.server = host.find("://") == host.npos ? "https://" + host : host;
  return result;
}

expected<mlflow_settings> server_at(std::string address) {
  mlflow_settings result;
  while (address.ends_with('/'))
    address.pop_back();
  result.server = std::move(address);
  read_credentials(result);
  result.workspace = variable("MLFLOW_WORKSPACE");
  return result;
}

expected<mlflow_settings> settings_at(const std::string& address,
                                      const mlflow_options& options,
                                      const fs::path& run_path) {
  if (address.empty()) {
    mlflow_settings result;
    result.tree = run_path.parent_path() / "mlruns";
    return result;
  }
  if (address == "databricks" || address.starts_with("databricks://"))
    return databricks_at(address, options);
  if (address.starts_with("http://") || address.starts_with("https://"))
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

} // namespace

std::string variable(const char* name) {
  const auto* value = std::getenv(name);
  return value ? value : "";
}

expected<mlflow_settings> resolve_mlflow(const mlflow_options& options,
                                         const fs::path& run_path) {
  auto result = settings_at(address_of(options), options, run_path);
  if (!result)
    return result;
  const auto text = variable("MLFLOW_HTTP_REQUEST_TIMEOUT");
  long seconds = 0;
  std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (seconds > 0)
    result->timeout = std::chrono::seconds{seconds};
  return result;
}

mlflow_options portable(mlflow_options options) {
  options.tracking_uri = without_user(
    first_of(options.tracking_uri, variable("MLFLOW_TRACKING_URI")));
  options.databricks_config_file = first_of(options.databricks_config_file,
                                            variable("DATABRICKS_CONFIG_FILE"));
  options.databricks_profile =
    first_of(options.databricks_profile, variable("DATABRICKS_CONFIG_PROFILE"));
  return options;
}

} // namespace troupe
