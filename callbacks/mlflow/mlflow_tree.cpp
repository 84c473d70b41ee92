#include "troupe/callbacks/mlflow/mlflow_tree.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include <nlohmann/json.hpp>

#include "troupe/callbacks/http/percent_encoded.hpp"
#include "troupe/callbacks/mlflow/meta_file.hpp"
#include "troupe/callbacks/mlflow/mlflow_artifacts.hpp"
#include "troupe/callbacks/mlflow/mlflow_names.hpp"
#include "troupe/callbacks/mlflow/mlflow_text.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe {

namespace {

using json = nlohmann::json;
using kind = sink_failure::kind;

constexpr std::size_t max_value_file = 1024 * 1024;

sink_result as_result(const expected<void>& x) {
  if (x)
    return {};
  return sink_fails(kind::transient, x.error());
}

/// MLflow's habit are 18 digits; ours follow from the name, so that two runs
/// that make one experiment at the same time make the same folder.
std::string experiment_id_of(const std::string& name) {
  std::uint64_t hash = 14695981039346656037u; // FNV-1a
  for (unsigned char c : name)
    hash = (hash ^ c) * 1099511628211u;
  return std::to_string(100'000'000'000'000'000
                        + hash % 900'000'000'000'000'000);
}

int status_number(run_status_kind x) {
  switch (x) {
    case run_status_kind::running:
      return 1;
    case run_status_kind::finished:
      return 3;
    case run_status_kind::errored:
      return 4;
    case run_status_kind::aborted:
    case run_status_kind::preempted:
      return 5;
  }
  return 1;
}

std::string uri_of(const fs::path& path) {
  return "file://" + percent_encoded(path.string(), "/");
}

std::string line_of(const mlflow_metric& x) {
  return std::to_string(x.time_ms) + ' ' + mlflow_text(x.value) + ' '
         + std::to_string(x.step) + '\n';
}

/// Appends *lines*, whole ones, by one write behind the first *known* bytes;
/// the file's new size. What an attempt that failed left behind them goes.
expected<std::uint64_t> append_lines(const fs::path& path, std::uint64_t known,
                                     const std::string& lines) {
  boost::system::error_code failed;
  fs::create_directories(path.parent_path(), failed);
  if (failed)
    return tl::unexpected{
      storage_error("make", path.parent_path(), failed.value())};
  auto file = open_file(path, O_WRONLY | O_CREAT | O_APPEND, "open");
  if (!file)
    return tl::unexpected{file.error()};
  auto before = static_cast<std::uint64_t>(::lseek(file->get(), 0, SEEK_END));
  if (before > known && ::ftruncate(file->get(), known) != 0)
    return tl::unexpected{storage_error("cut", path, errno)};
  before = std::min(before, known);
  auto written = ::write(file->get(), lines.data(), lines.size());
  if (written == static_cast<ssize_t>(lines.size())) {
    failpoint("mlflow.appended");
    return before + lines.size();
  }
  auto code = written < 0 ? errno : ENOSPC;
  // A torn line reads as a wrong number, and an empty file not at all.
  if (before == 0)
    fs::remove(path, failed);
  else if (::ftruncate(file->get(), before) != 0)
    code = errno;
  return tl::unexpected{storage_error("write", path, code)};
}

/// Cuts *path* to *size* bytes and there to its last line end; removes a file
/// of which nothing stays. The size that it has then.
expected<std::uint64_t> cut_file(const fs::path& path, std::uint64_t size) {
  auto text = read_file(path, std::size_t{1} << 40);
  if (!text)
    return tl::unexpected{text.error()};
  auto whole = text->substr(0, size).rfind('\n');
  auto keep = whole == text->npos ? 0 : whole + 1;
  boost::system::error_code failed;
  if (keep == 0)
    fs::remove(path, failed);
  else if (keep < text->size())
    return open_file(path, O_WRONLY, "open")
      .and_then([&](const unique_fd& file) -> expected<std::uint64_t> {
        if (::ftruncate(file.get(), static_cast<off_t>(keep)) != 0)
          return tl::unexpected{storage_error("cut", path, errno)};
        return keep;
      });
  if (failed)
    return tl::unexpected{storage_error("cut", path, failed.value())};
  return keep;
}

} // namespace

sink_result mlflow_tree::open(const mlflow_run& run, const std::string& state) {
  run_ = run;
  sizes_.clear();
  params_.clear();
  id_ = run.run_id.empty() ? run.uid : run.run_id;
  if (auto x = json::parse(state, nullptr, false); x.is_object()) {
    id_ = x.value("run_id", id_);
    sizes_ = x.value("sizes", sizes_type{});
  }
  if (id_.empty() || id_ == "." || id_ == ".." || id_.find('/') != id_.npos)
    return sink_fails(
      kind::permanent,
      {ec::invalid_config, "'" + id_ + "' can not be the id of a run"});
  try {
    auto experiment = experiment_folder();
    if (!experiment)
      return sink_fails(experiment.error().code == ec::storage
                          ? kind::transient
                          : kind::permanent,
                        experiment.error());
    folder_ = *experiment / id_;
    if (auto ok = make_run(); !ok)
      return as_result(ok);
    if (auto ok = cut_metrics(); !ok)
      return as_result(ok);
    const auto params = folder_ / "params";
    auto known = files_below(params);
    if (!known)
      return sink_fails(kind::transient, known.error());
    for (const auto& file : *known)
      if (auto text = read_file(file, max_value_file))
        params_[file.lexically_relative(params).string()] = *text;
  } catch (const fs::filesystem_error& x) {
    return sink_fails(kind::transient, {ec::storage, x.what()});
  }
  return set_tags(run.tags);
}

expected<fs::path> mlflow_tree::experiment_folder() {
  fs::create_directories(root_ / ".trash");
  if (auto ok = make_experiment("0", "Default"); !ok)
    return ok;
  const auto& wanted_id = run_.experiment_id;
  for (const auto& entry : fs::directory_iterator{root_}) {
    auto meta = read_meta(entry.path() / "meta.yaml");
    auto is_it = wanted_id.empty() ? meta["name"] == run_.experiment
                                   : meta["experiment_id"] == wanted_id;
    if (meta.empty() || !is_it)
      continue;
    if (meta["lifecycle_stage"] == "deleted")
      return failure(ec::invalid_config, "MLflow's experiment '" + meta["name"]
                                           + "' in " + root_.string()
                                           + " is deleted");
    experiment_id_ = meta["experiment_id"];
    return entry.path();
  }
  if (!wanted_id.empty())
    return failure(ec::invalid_config, "there is no experiment " + wanted_id
                                         + " in " + root_.string());
  return make_experiment(experiment_id_of(run_.experiment), run_.experiment);
}

expected<fs::path> mlflow_tree::make_experiment(const std::string& id,
                                                const std::string& name) {
  const auto folder = root_ / id;
  experiment_id_ = id;
  auto meta = look_up(folder / "meta.yaml");
  if (!meta)
    return tl::unexpected{meta.error()};
  if (meta->exists())
    return folder;
  const auto now =
    std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(
                     std::chrono::system_clock::now().time_since_epoch())
                     .count());
  fs::create_directories(folder);
  auto ok = replace_file(
    folder / "meta.yaml",
    "artifact_location: " + yaml_text(uri_of(folder)) + "\ncreation_time: "
      + now + "\nexperiment_id: '" + id + "'\nlast_update_time: " + now
      + "\nlifecycle_stage: active\nname: " + yaml_text(name) + "\n");
  if (!ok)
    return tl::unexpected{ok.error()};
  return folder;
}

expected<void> mlflow_tree::make_run() {
  for (const auto* name : {"metrics", "params", "tags", "artifacts"})
    fs::create_directories(folder_ / name);
  return write_meta(run_status_kind::running, 0);
}

/// What came after the state is given again.
expected<void> mlflow_tree::cut_metrics() {
  const auto metrics = folder_ / "metrics";
  auto files = files_below(metrics);
  if (!files)
    return tl::unexpected{files.error()};
  for (const auto& file : *files) {
    const auto key = file.lexically_relative(metrics).string();
    auto known = sizes_.find(key);
    auto size = cut_file(file, known == sizes_.end() ? 0 : known->second);
    if (!size)
      return tl::unexpected{size.error()};
    if (known != sizes_.end())
      known->second = *size;
  }
  return {};
}

expected<void> mlflow_tree::write_meta(run_status_kind status,
                                       std::int64_t end_ms) {
  auto end =
    status == run_status_kind::running ? "null" : std::to_string(end_ms);
  return replace_file(
    folder_ / "meta.yaml",
    "artifact_uri: " + yaml_text(uri_of(folder_ / "artifacts"))
      + "\nend_time: " + end + "\nentry_point_name: ''\nexperiment_id: '"
      + experiment_id_ + "'\nlifecycle_stage: active\nrun_id: " + yaml_text(id_)
      + "\nrun_name: " + yaml_text(run_.name) + "\nrun_uuid: " + yaml_text(id_)
      + "\nsource_name: ''\nsource_type: 4\nsource_version: ''\nstart_time: "
      + std::to_string(run_.start_ms)
      + "\nstatus: " + std::to_string(status_number(status))
      + "\ntags: []\nuser_id: " + yaml_text(run_.user) + "\n");
}

/// `a` cannot be a file and, for `a/b`, a folder, too: who comes second gets a
/// name of its own.
expected<std::string> mlflow_tree::place_of(const char* what,
                                            const std::string& key) const {
  const auto base = folder_ / what;
  auto found = look_up(base / key);
  auto taken = found && found->is_folder();
  for (auto i = key.find('/'); found && i != key.npos;
       i = key.find('/', i + 1)) {
    found = look_up(base / key.substr(0, i));
    taken = taken || (found && found->is_file());
  }
  if (!found)
    return tl::unexpected{found.error()};
  if (!taken)
    return key;
  auto result = key;
  std::ranges::replace(result, '/', '_');
  return result + mlflow_name_mark(key);
}

/// In one step, since an empty file would be an empty value.
expected<void> mlflow_tree::write_value(const char* what,
                                        const mlflow_pair& x) {
  auto place = place_of(what, x.key);
  if (!place)
    return tl::unexpected{place.error()};
  const auto file = folder_ / what / *place;
  boost::system::error_code failed;
  fs::create_directories(file.parent_path(), failed);
  const auto temporary = folder_ / ".value.tmp"; // Where no reader looks.
  fs::remove(temporary, failed);
  if (auto ok = write_new_file(temporary, x.value); !ok)
    return ok;
  fs::rename(temporary, file, failed);
  if (failed)
    return tl::unexpected{storage_error("write", file, failed.value())};
  return {};
}

sink_result mlflow_tree::log_metrics(std::span<const mlflow_metric> metrics) {
  std::map<std::string, std::string> lines;
  for (const auto& x : metrics)
    lines[x.key] += line_of(x);
  auto sizes = sizes_;
  for (const auto& [key, text] : lines) {
    auto name = place_of("metrics", key);
    if (!name)
      return sink_fails(kind::transient, name.error());
    auto& size = sizes[*name];
    auto grown = append_lines(folder_ / "metrics" / *name, size, text);
    if (!grown)
      return sink_fails(kind::transient, grown.error());
    size = *grown;
  }
  sizes_ = std::move(sizes);
  return {};
}

sink_result mlflow_tree::log_params(std::span<const mlflow_pair> params) {
  for (const auto& x : params) {
    if (auto ok = write_value("params", x); !ok)
      return as_result(ok);
    params_[x.key] = x.value;
  }
  return {};
}

sink_result mlflow_tree::set_tags(std::span<const mlflow_pair> tags) {
  for (const auto& x : tags)
    if (auto ok = write_value("tags", x); !ok)
      return as_result(ok);
  return {};
}

sink_result mlflow_tree::put_file(const fs::path& file,
                                  const std::string& name) {
  return as_result(copy_artifact(file, folder_ / "artifacts" / name));
}

sink_result mlflow_tree::end(run_status_kind status, std::int64_t time_ms) {
  return as_result(write_meta(status, time_ms));
}

std::string mlflow_tree::state() const {
  if (id_.empty())
    return {};
  return json{{"run_id", id_}, {"sizes", sizes_}}.dump();
}

} // namespace troupe
