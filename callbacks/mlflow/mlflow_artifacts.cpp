#include "troupe/callbacks/mlflow/mlflow_artifacts.hpp"

#include <nlohmann/json.hpp>

#include "troupe/callbacks/http/http_text.hpp"
#include "troupe/runtime/process/redacted.hpp"
#include "troupe/runtime/storage/file_copy.hpp"

namespace troupe {

namespace {

using kind = sink_failure::kind;

/// What follows the scheme and the host of *uri*, without slashes at its ends.
std::string path_of(const std::string& uri) {
  auto begin = uri.find(':') + 1;
  if (uri.compare(begin, 2, "//") == 0)
    begin = std::min(uri.find('/', begin + 2), uri.size());
  auto result = uri.substr(begin);
  while (result.starts_with('/'))
    result.erase(0, 1);
  while (result.ends_with('/'))
    result.pop_back();
  return result;
}

bool has_scheme(const std::string& uri) {
  return uri.find(':') < uri.find('/');
}

} // namespace

void mlflow_artifacts::use(std::string run_id, std::string root) {
  run_id_ = std::move(run_id);
  root_ = std::move(root);
}

sink_result mlflow_artifacts::put(const fs::path& file,
                                  const std::string& name) {
  if (root_.starts_with("mlflow-artifacts:")) {
    auto path = "/api/2.0/mlflow-artifacts/artifacts/"
                + percent_encoded(path_of(root_) + "/" + name, "/");
    if (auto ok = api_.put(path, file); !ok)
      return tl::unexpected{ok.error().failure};
    return {};
  }
  if (root_.starts_with("dbfs:"))
    return put_signed(file, name);
  if (root_.starts_with("file:") || !has_scheme(root_)) {
    fs::path root = has_scheme(root_) ? "/" + path_of(root_) : root_;
    return copy_artifact(file, root / name);
  }
  return sink_fails(
    kind::rejected,
    {ec::unsupported, "the artifacts of the run are in " + shown_url(root_)
                        + ", which only the server can write to: start it with "
                          "--serve-artifacts --artifacts-destination"});
}

sink_result mlflow_artifacts::put_signed(const fs::path& file,
                                         const std::string& name) {
  const nlohmann::json question{{"run_id", run_id_}, {"path", {name}}};
  auto answer = api_.post("artifacts/credentials-for-write", question.dump());
  if (!answer)
    return tl::unexpected{answer.error().failure};
  http_request request{.method = "PUT", .file = file};
  try {
    auto info = nlohmann::json::parse(*answer).at("credential_infos").at(0);
    request.url = info.at("signed_uri").get<std::string>();
    if (info.contains("headers"))
      for (const auto& x : info["headers"])
        request.headers.emplace_back(x.at("name").get<std::string>(),
                                     x.at("value").get<std::string>());
    if (info.value("type", "").starts_with("AZURE_SAS"))
      request.headers.emplace_back("x-ms-blob-type", "BlockBlob");
  } catch (const nlohmann::json::exception&) {
    return sink_fails(kind::rejected,
                      {ec::protocol, "MLflow gave no signed address for the "
                                     "artifact "
                                       + name});
  }
  if (auto ok = api_.send_plain(request); !ok) {
    auto failed = ok.error().failure;
    // An address that has expired; the next attempt gets a new one.
    if (failed.what == kind::permanent)
      failed.what = kind::transient;
    return tl::unexpected{failed};
  }
  return {};
}

sink_result copy_artifact(const fs::path& file, const fs::path& target) {
  auto ok = copy_file(file, target, copy_sync::yes);
  if (ok)
    return {};
  // One file that cannot be there keeps no other record waiting.
  auto lasts = ok.error().code == ec::invalid_argument;
  return sink_fails(lasts ? kind::rejected : kind::transient, ok.error());
}

} // namespace troupe
