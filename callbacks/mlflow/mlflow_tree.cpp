#include "troupe/callbacks/mlflow/mlflow_tree.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "troupe/callbacks/encoding/percent.hpp"
#include "troupe/callbacks/http/http_client.hpp"
#include "troupe/callbacks/mlflow/mlflow_files.hpp"
#include "troupe/callbacks/mlflow/mlflow_names.hpp"
#include "troupe/runtime/storage/append_file.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/json.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/unix_time.hpp"
#include "troupe/runtime/whole_number.hpp"

namespace troupe::internal {

namespace {

using kind = sink_failure::kind;

constexpr mode_t folder_mode = 0777; // The umask applies.
constexpr std::size_t max_value_file = 1024 * 1024;
constexpr auto temporary_value = ".value"; // For `make_temporary`.

// MLflow uses 18-digit ids; we derive ours from the name, so that two runs that
// create one experiment at the same time create the same folder.
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
  return concat(x.time_ms, ' ', mlflow_text(x.value), ' ', x.step, '\n');
}

expected<void> sync_all(const std::set<fs::path>& paths) {
  for (auto& path : paths)
    if (auto ok =
          open_file(path, O_RDONLY, "open").and_then([&](const unique_fd& x) {
            return sync_file(x, path);
          });
        !ok)
      return ok;
  return {};
}

// Runs of other processes may replace *path* at the same moment.
expected<void> replace_meta(const fs::path& path, const std::string& text) {
  TROUPE_TRY(auto folder, open_file(path.parent_path(), O_RDONLY | O_DIRECTORY,
                                    "open folder"));
  return replace_shared_file(folder, path, text);
}

// Whether `make_temporary` may have made a file *name* for *path*.
bool is_temporary(std::string_view name, std::string_view path) {
  return name.starts_with(path) && name.substr(path.size()).starts_with('.')
         && is_digits(name.substr(path.size() + 1));
}

// The files and folders in *folder*.
expected<std::vector<fs::path>> entries_of(const fs::path& folder) {
  std::vector<fs::path> result;
  boost::system::error_code code;
  for (fs::directory_iterator i{folder, code}, end; !code && i != end;
       i.increment(code))
    result.push_back(i->path());
  if (code)
    return tl::unexpected{storage_error("list", folder, code.value())};
  return result;
}

// Adds the folders from *base* down to the one of *file*.
void add_folders(std::set<fs::path>& to, const fs::path& base,
                 const fs::path& file) {
  auto folder = file.parent_path();
  for (; folder != base; folder = folder.parent_path())
    to.insert(folder);
  to.insert(folder);
}

} // namespace

sink_result mlflow_tree::open(const mlflow_run& run, const std::string& state) {
  run_ = run;
  sizes_.clear();
  params_.clear();
  id_ = run.run_id.empty() ? run.uid : run.run_id;
  if (auto x = json::parse(state); x.is_object()) {
    id_ = x.value("run_id", id_);
    sizes_ = x.value("sizes", sizes_type{});
  }
  if (id_.empty() || id_ == "." || id_ == ".." || id_.find('/') != id_.npos)
    return sink_fails(
      kind::permanent,
      {ec::invalid_config, "'" + id_ + "' cannot be the id of a run"});
  is_ours_ = id_ == run.uid && !run.is_shared;
  if (auto ok = may_write(over_, root_); !ok)
    return file_result(ok);
  auto experiment = experiment_folder();
  if (!experiment)
    return sink_fails(experiment.error().code == ec::storage ? kind::transient
                                                             : kind::permanent,
                      experiment.error());
  folder_ = *experiment / id_;
  if (auto ok = make_run(); !ok)
    return file_result(ok);
  if (is_ours_) {
    if (auto ok = remove_temporary_files(); !ok)
      return file_result(ok);
    if (auto ok = cut_metrics(); !ok)
      return file_result(ok);
  }
  auto params = folder_ / "params";
  auto known = files_below(params);
  if (!known)
    return sink_fails(kind::transient, known.error());
  for (auto& file : *known)
    if (auto text = read_file(file, max_value_file))
      params_[file.lexically_relative(params).string()] = *text;
  auto tags = own_tags();
  if (!tags)
    return sink_fails(kind::transient, tags.error());
  return set_tags(*tags);
}

// A run that someone else created keeps its name, user and source.
expected<std::vector<mlflow_pair>> mlflow_tree::own_tags() const {
  if (is_ours_)
    return run_.tags;
  std::vector<mlflow_pair> result;
  for (auto& x : run_.tags) {
    TROUPE_TRY(auto found, look_up(folder_ / "tags" / x.key));
    if (!found.exists() || !x.key.starts_with("mlflow."))
      result.push_back(x);
  }
  return result;
}

expected<fs::path> mlflow_tree::experiment_folder() {
  TROUPE_TRY_VOID(make_folders(root_ / ".trash", folder_mode));
  TROUPE_TRY_VOID(make_experiment("0", "Default"));
  TROUPE_TRY(auto folders, entries_of(root_));
  if (!is_ours_)
    for (auto& folder : folders) {
      TROUPE_TRY(auto meta, look_up(folder / id_ / "meta.yaml"));
      if (meta.exists())
        return folder;
    }
  auto& wanted_id = run_.experiment_id;
  for (auto& folder : folders) {
    auto meta = read_meta(folder / "meta.yaml");
    auto is_it = wanted_id.empty() ? meta["name"] == run_.experiment
                                   : meta["experiment_id"] == wanted_id;
    if (meta.empty() || !is_it)
      continue;
    if (meta["lifecycle_stage"] == "deleted")
      return failure(ec::invalid_config,
                     concat("MLflow's experiment '", meta["name"], "' in ",
                            root_.string(), " is deleted"));
    experiment_id_ = meta["experiment_id"];
    return folder;
  }
  if (!wanted_id.empty())
    return failure(
      ec::invalid_config,
      concat("there is no experiment ", wanted_id, " in ", root_.string()));
  return make_experiment(experiment_id_of(run_.experiment), run_.experiment);
}

expected<fs::path> mlflow_tree::make_experiment(const std::string& id,
                                                const std::string& name) {
  auto folder = root_ / id;
  experiment_id_ = id;
  TROUPE_TRY(auto meta, look_up(folder / "meta.yaml"));
  if (meta.exists())
    return folder;
  auto now = std::to_string(unix_ms(std::chrono::system_clock::now()));
  TROUPE_TRY_VOID(make_folders(folder, folder_mode));
  TROUPE_TRY_VOID(replace_meta(
    folder / "meta.yaml",
    "artifact_location: " + yaml_text(uri_of(folder)) + "\ncreation_time: "
      + now + "\nexperiment_id: '" + id + "'\nlast_update_time: " + now
      + "\nlifecycle_stage: active\nname: " + yaml_text(name) + "\n"));
  return folder;
}

expected<void> mlflow_tree::make_run() {
  TROUPE_TRY_VOID(may_write(over_, folder_));
  for (auto* name : {"metrics", "params", "tags", "artifacts"})
    TROUPE_TRY_VOID(make_folders(folder_ / name, folder_mode));
  return write_meta(run_status_kind::running, 0);
}

// Those of a process that was killed before it had renamed them.
expected<void> mlflow_tree::remove_temporary_files() {
  TROUPE_TRY(auto files, entries_of(folder_));
  for (auto& file : files) {
    auto name = file.filename().string();
    auto is_left =
      is_temporary(name, temporary_value) || is_temporary(name, "meta.yaml");
    if (!is_left)
      continue;
    TROUPE_TRY_VOID(may_write(over_, file));
    boost::system::error_code failed; // Then it stays, which does no harm.
    fs::remove(file, failed);
  }
  return {};
}

// Cuts off what was written after the state; it will be delivered again.
expected<void> mlflow_tree::cut_metrics() {
  auto metrics = folder_ / "metrics";
  TROUPE_TRY(auto files, files_below(metrics));
  for (auto& file : files) {
    TROUPE_TRY_VOID(may_write(over_, file));
    auto key = file.lexically_relative(metrics).string();
    auto known = sizes_.find(key);
    TROUPE_TRY(auto size, cut_metric_lines(
                            file, known == sizes_.end() ? 0 : known->second));
    if (known != sizes_.end())
      known->second = size;
  }
  return {};
}

expected<void> mlflow_tree::write_meta(run_status_kind status,
                                       std::int64_t end_ms) {
  auto file = folder_ / "meta.yaml";
  TROUPE_TRY_VOID(may_write(over_, file));
  auto number = std::to_string(status_number(status));
  auto end =
    status == run_status_kind::running ? "null" : std::to_string(end_ms);
  TROUPE_TRY(auto found, look_up(file));
  if (is_ours_ || !found.exists())
    return replace_meta(file, new_meta(number, end));
  TROUPE_TRY(auto old, read_file(file, max_value_file));
  std::string meta;
  std::istringstream lines{old};
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("status:") && !line.starts_with("end_time:"))
      meta += line + '\n';
  return replace_meta(
    file, concat(meta, "end_time: ", end, "\nstatus: ", number, '\n'));
}

std::string mlflow_tree::new_meta(const std::string& status,
                                  const std::string& end) const {
  return concat(
    "artifact_uri: ", yaml_text(uri_of(folder_ / "artifacts")),
    "\nend_time: ", end, "\nentry_point_name: ''\nexperiment_id: '",
    experiment_id_, "'\nlifecycle_stage: active\nrun_id: ", yaml_text(id_),
    "\nrun_name: ", yaml_text(run_.name), "\nrun_uuid: ", yaml_text(id_),
    "\nsource_name: ''\nsource_type: 4\nsource_version: ''"
    "\nstart_time: ",
    run_.start_ms, "\nstatus: ", status,
    "\ntags: []\nuser_id: ", yaml_text(run_.user), "\n");
}

// `a` cannot be both a file and, for `a/b`, a folder: the later of the two gets
// another name.
expected<std::string> mlflow_tree::place_of(const char* what,
                                            const std::string& key) const {
  auto base = folder_ / what;
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

expected<void> mlflow_tree::write_values(const char* what,
                                         std::span<const mlflow_pair> values) {
  std::set<fs::path> folders;
  for (auto& x : values) {
    TROUPE_TRY(auto file, write_value(what, x));
    add_folders(folders, folder_ / what, file);
  }
  return sync_all(folders);
}

// Writes the file in one step, since an empty file would be an empty value.
// Returns its path.
expected<fs::path> mlflow_tree::write_value(const char* what,
                                            const mlflow_pair& x) {
  TROUPE_TRY(auto place, place_of(what, x.key));
  auto file = folder_ / what / place;
  TROUPE_TRY_VOID(may_write(over_, file));
  boost::system::error_code failed;
  fs::create_directories(file.parent_path(), failed);
  // Readers ignore it, and another process has one of its own.
  auto made = make_temporary(AT_FDCWD, folder_ / temporary_value, 0600);
  if (!made.file)
    return tl::unexpected{storage_error("create", made.path, made.code)};
  auto written = write_durably(made.file, made.path, x.value);
  if (written && ::rename(made.path.c_str(), file.c_str()) != 0)
    written = tl::unexpected{storage_error("write", file, errno)};
  if (written)
    return file;
  fs::remove(made.path, failed);
  return tl::unexpected{written.error()};
}

sink_result mlflow_tree::log_metrics(std::span<const mlflow_metric> metrics) {
  std::map<std::string, std::string> lines;
  for (auto& x : metrics)
    lines[x.key] += line_of(x);
  auto sizes = sizes_;
  std::set<fs::path> written;
  for (auto& [key, text] : lines) {
    auto name = place_of("metrics", key);
    if (!name)
      return sink_fails(kind::transient, name.error());
    auto& size = sizes[*name];
    auto file = folder_ / "metrics" / *name;
    if (auto ok = may_write(over_, file); !ok)
      return file_result(ok);
    if (size == 0)
      add_folders(written, folder_ / "metrics", file);
    auto grown = is_ours_ ? append_metric_lines(file, size, text)
                          : add_metric_lines(file, size, text);
    if (!grown)
      return sink_fails(kind::transient, grown.error());
    size = *grown;
    written.insert(file);
  }
  // Sync once per batch, after all files are written: this costs the disk
  // least.
  if (auto ok = sync_all(written); !ok)
    return file_result(ok);
  former_sizes_ = std::exchange(sizes_, std::move(sizes));
  return {};
}

sink_result mlflow_tree::log_params(std::span<const mlflow_pair> params) {
  if (auto ok = write_values("params", params); !ok)
    return file_result(ok);
  for (auto& x : params)
    params_[x.key] = x.value;
  return {};
}

sink_result mlflow_tree::set_tags(std::span<const mlflow_pair> tags) {
  return file_result(write_values("tags", tags));
}

sink_result mlflow_tree::put_file(const fs::path& file,
                                  const std::string& name) {
  auto copy = folder_ / "artifacts" / name;
  if (auto ok = may_write(over_, copy); !ok)
    return file_result(ok);
  return copy_artifact(file, copy);
}

bool mlflow_tree::has_file(const std::string& name) const {
  auto found = look_up(folder_ / "artifacts" / name);
  return !found || found->is_file(); // What is unknown is not removed.
}

sink_result mlflow_tree::remove(const std::string& name) {
  auto path = folder_ / "artifacts" / name;
  return file_result(
    may_write(over_, path).and_then([&] { return remove_tree(path); }));
}

sink_result mlflow_tree::end(run_status_kind status, std::int64_t time_ms) {
  return file_result(write_meta(status, time_ms));
}

std::string mlflow_tree::state() const {
  if (id_.empty())
    return {};
  return json::document{{"run_id", id_}, {"sizes", sizes_}}.dump();
}

} // namespace troupe::internal
