#include "troupe/callbacks/mlflow/mlflow_settings.hpp"

#include <charconv>

#include "troupe/callbacks/tracking/given_settings.hpp"
#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe {

namespace {

constexpr const char* address_name = "the tracking URI (MLFLOW_TRACKING_URI)";

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

expected<mlflow_settings> tree_in(const std::string& path) {
  return given_folder(path, address_name).map([](fs::path folder) {
    mlflow_settings result;
    result.tree = std::move(folder);
    return result;
  });
}

/// *address* without its user, if it is `host:port`, perhaps with a path; else
/// empty.
std::string server_without_scheme(const std::string& address) {
  auto authority = address.substr(0, address.find('/'));
  auto host = authority.rfind('@') + 1; // npos + 1 is 0
  auto colon = authority.rfind(':');
  if (colon == authority.npos || colon <= host || colon + 1 == authority.size()
      || authority.find_first_not_of("0123456789", colon + 1) != authority.npos)
    return {};
  return address.substr(host);
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
                   std::string{address_name} + " is '" + server
                     + "': for a server write http://" + server
                     + ", for a folder of that name ./" + server);
  return tree_in(address);
}

expected<void> read_credentials(mlflow_settings& x) {
  x.http.user = variable("MLFLOW_TRACKING_USERNAME");
  x.http.password = variable("MLFLOW_TRACKING_PASSWORD");
  if (x.http.user.empty() && x.http.password.empty()) {
    auto saved = ini_section(in_home(".mlflow/credentials"), "mlflow");
    x.http.user = saved["mlflow_tracking_username"];
    x.http.password = saved["mlflow_tracking_password"];
  }
  x.http.token = variable("MLFLOW_TRACKING_TOKEN");
  x.http.insecure_tls = is_true(variable("MLFLOW_TRACKING_INSECURE_TLS"));
  x.http.ca_file = variable("MLFLOW_TRACKING_SERVER_CERT_PATH");
  x.http.client_certificate = variable("MLFLOW_TRACKING_CLIENT_CERT_PATH");
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
                          variable("DATABRICKS_CONFIG_PROFILE"));
  fs::path file =
    first_of(options.databricks_config_file, variable("DATABRICKS_CONFIG_FILE"),
             in_home(".databrickscfg").string());
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
        + section + "] of "
        + (file.empty() ? "~/.databrickscfg" : file.string()) + state
        + " (DATABRICKS_CONFIG_FILE and DATABRICKS_CONFIG_PROFILE choose "
          "others)");
  }
  auto server =
    given_server(host.find("://") == host.npos ? "https://" + host : host,
                 "the host of Databricks (DATABRICKS_HOST, or host in "
                   + file.string() + ")");
  if (!server)
    return tl::unexpected{server.error()};
  result.server = std::move(*server);
  for (auto secret :
       {&result.http.token, &result.client_id, &result.client_secret})
    if (auto ok = check_credential(*secret, "a credential of Databricks (of "
                                            "DATABRICKS_*, or in "
                                              + file.string() + ")");
        !ok)
      return tl::unexpected{ok.error()};
  return result;
}

expected<mlflow_settings> server_at(const std::string& address) {
  auto server = given_server(address, address_name);
  if (!server)
    return tl::unexpected{server.error()};
  mlflow_settings result;
  result.server = std::move(*server);
  if (auto ok = read_credentials(result); !ok)
    return tl::unexpected{ok.error()};
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

} // namespace

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
