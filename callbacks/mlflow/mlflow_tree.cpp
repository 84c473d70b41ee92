#include "troupe/callbacks/mlflow/mlflow_tree.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <set>
#include <sstream>
#include <string_view>

#include <nlohmann/json.hpp>

#include "troupe/callbacks/encoding/record_file.hpp"
#include "troupe/callbacks/http/http_text.hpp"
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

constexpr mode_t folder_mode = 0777; // Less the user's umask.
constexpr std::size_t max_value_file = 1024 * 1024;
constexpr std::size_t max_metric_file = std::size_t{1} << 40;

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

expected<unique_fd> open_metric(const fs::path& path) {
  boost::system::error_code failed;
  fs::create_directories(path.parent_path(), failed);
  if (failed)
    return tl::unexpected{
      storage_error("make", path.parent_path(), failed.value())};
  return open_file(path, O_RDWR | O_CREAT | O_APPEND, "open");
}

/// Appends *lines* by one write; the size of *file*, which was *size*, then.
expected<std::uint64_t> append(const unique_fd& file, const fs::path& path,
                               std::uint64_t size, const std::string& lines) {
  auto written = ::write(file.get(), lines.data(), lines.size());
  if (written == static_cast<ssize_t>(lines.size())) {
    failpoint("mlflow.appended");
    return size + lines.size();
  }
  auto code = written < 0 ? errno : ENOSPC;
  // A torn line reads as a wrong number, and an empty file not at all.
  boost::system::error_code failed;
  if (size == 0)
    fs::remove(path, failed);
  else if (::ftruncate(file.get(), static_cast<off_t>(size)) != 0)
    code = errno;
  return tl::unexpected{storage_error("write", path, code)};
}

/// Appends *lines*, whole ones, behind the first *known* bytes; the file's new
/// size. What an attempt that failed left behind them goes.
expected<std::uint64_t> append_lines(const fs::path& path, std::uint64_t known,
                                     const std::string& lines) {
  auto file = open_metric(path);
  if (!file)
    return tl::unexpected{file.error()};
  auto size = static_cast<std::uint64_t>(::lseek(file->get(), 0, SEEK_END));
  if (size > known && ::ftruncate(file->get(), static_cast<off_t>(known)) != 0)
    return tl::unexpected{storage_error("cut", path, errno)};
  return append(*file, path, std::min(size, known), lines);
}

/// Those of *lines*, whole ones, that do not stand in *there* yet. The first of
/// them may have broken off at its end: then what is missing of it.
std::string missing_lines(std::string_view there, std::string_view lines) {
  std::set<std::string_view> known;
  for (auto end = there.find('\n'); end != there.npos; end = there.find('\n')) {
    known.insert(there.substr(0, end));
    there.remove_prefix(end + 1);
  }
  std::string result;
  for (auto end = lines.find('\n'); end != lines.npos; end = lines.find('\n')) {
    if (!known.contains(lines.substr(0, end)))
      result += lines.substr(0, end + 1);
    lines.remove_prefix(end + 1);
  }
  if (result.empty() || there.empty())
    return result;
  // Otherwise it is someone's whole line without its end.
  return result.starts_with(there) ? result.substr(there.size())
                                   : '\n' + result;
}

/// Appends *lines*, whole ones, to a file to which others write, too; its size
/// up to which they are known to stand. What is behind the first *known* bytes
/// stays; lines that stand there already are left out.
expected<std::uint64_t> add_lines(const fs::path& path, std::uint64_t known,
                                  const std::string& lines) {
  auto file = open_metric(path);
  if (!file)
    return tl::unexpected{file.error()};
  (void) ::flock(file->get(), LOCK_EX); // Where the file system has locks.
  auto size = static_cast<std::uint64_t>(::lseek(file->get(), 0, SEEK_END));
  auto missing = lines;
  if (size > known) {
    ::lseek(file->get(), static_cast<off_t>(known), SEEK_SET);
    auto there = read_open_file(*file, path, max_metric_file);
    if (!there)
      return tl::unexpected{there.error()};
    missing = missing_lines(*there, lines);
  }
  if (missing.empty())
    return known;
  return append(*file, path, size, missing);
}

expected<void> sync_all(const std::set<fs::path>& paths) {
  for (const auto& path : paths)
    if (auto ok =
          open_file(path, O_RDONLY, "open").and_then([&](const unique_fd& x) {
            return sync_file(x, path);
          });
        !ok)
      return ok;
  return {};
}

/// What lies in *folder*.
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

/// Adds the folders from *base* down to that of *file*.
void add_folders(std::set<fs::path>& to, const fs::path& base,
                 const fs::path& file) {
  auto folder = file.parent_path();
  for (; folder != base; folder = folder.parent_path())
    to.insert(folder);
  to.insert(folder);
}

/// Cuts *path* to *size* bytes and there to its last line end; removes a file
/// of which nothing stays. The size that it has then.
expected<std::uint64_t> cut_file(const fs::path& path, std::uint64_t size) {
  auto text = read_file(path, max_metric_file);
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
      {ec::invalid_config, "'" + id_ + "' cannot be the id of a run"});
  is_ours_ = id_ == run.uid;
  if (auto ok = may_write(over_, root_); !ok)
    return as_result(ok);
  auto experiment = experiment_folder();
  if (!experiment)
    return sink_fails(experiment.error().code == ec::storage ? kind::transient
                                                             : kind::permanent,
                      experiment.error());
  folder_ = *experiment / id_;
  if (auto ok = make_run(); !ok)
    return as_result(ok);
  if (is_ours_)
    if (auto ok = cut_metrics(); !ok)
      return as_result(ok);
  const auto params = folder_ / "params";
  auto known = files_below(params);
  if (!known)
    return sink_fails(kind::transient, known.error());
  for (const auto& file : *known)
    if (auto text = read_file(file, max_value_file))
      params_[file.lexically_relative(params).string()] = *text;
  auto tags = own_tags();
  if (!tags)
    return sink_fails(kind::transient, tags.error());
  return set_tags(*tags);
}

/// The run's name, user and source stay those of who made it.
expected<std::vector<mlflow_pair>> mlflow_tree::own_tags() const {
  if (is_ours_)
    return run_.tags;
  std::vector<mlflow_pair> result;
  for (const auto& x : run_.tags) {
    auto found = look_up(folder_ / "tags" / x.key);
    if (!found)
      return tl::unexpected{found.error()};
    if (!found->exists() || !x.key.starts_with("mlflow."))
      result.push_back(x);
  }
  return result;
}

expected<fs::path> mlflow_tree::experiment_folder() {
  if (auto made = make_folders(root_ / ".trash", folder_mode); !made)
    return tl::unexpected{made.error()};
  if (auto ok = make_experiment("0", "Default"); !ok)
    return ok;
  auto folders = entries_of(root_);
  if (!folders)
    return tl::unexpected{folders.error()};
  if (!is_ours_)
    for (const auto& folder : *folders) {
      auto meta = look_up(folder / id_ / "meta.yaml");
      if (!meta)
        return tl::unexpected{meta.error()};
      if (meta->exists())
        return folder;
    }
  const auto& wanted_id = run_.experiment_id;
  for (const auto& folder : *folders) {
    auto meta = read_meta(folder / "meta.yaml");
    auto is_it = wanted_id.empty() ? meta["name"] == run_.experiment
                                   : meta["experiment_id"] == wanted_id;
    if (meta.empty() || !is_it)
      continue;
    if (meta["lifecycle_stage"] == "deleted")
      return failure(ec::invalid_config, "MLflow's experiment '" + meta["name"]
                                           + "' in " + root_.string()
                                           + " is deleted");
    experiment_id_ = meta["experiment_id"];
    return folder;
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
  if (auto made = make_folders(folder, folder_mode); !made)
    return tl::unexpected{made.error()};
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
  if (auto ok = may_write(over_, folder_); !ok)
    return ok;
  for (const auto* name : {"metrics", "params", "tags", "artifacts"})
    if (auto ok = make_folders(folder_ / name, folder_mode); !ok)
      return ok;
  return write_meta(run_status_kind::running, 0);
}

/// What came after the state is given again.
expected<void> mlflow_tree::cut_metrics() {
  const auto metrics = folder_ / "metrics";
  auto files = files_below(metrics);
  if (!files)
    return tl::unexpected{files.error()};
  for (const auto& file : *files) {
    if (auto ok = may_write(over_, file); !ok)
      return ok;
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
  const auto file = folder_ / "meta.yaml";
  if (auto ok = may_write(over_, file); !ok)
    return ok;
  const auto number = std::to_string(status_number(status));
  const auto end =
    status == run_status_kind::running ? "null" : std::to_string(end_ms);
  auto found = look_up(file);
  if (!found)
    return tl::unexpected{found.error()};
  if (is_ours_ || !found->exists())
    return replace_file(file, new_meta(number, end));
  auto old = read_file(file, max_value_file);
  if (!old)
    return tl::unexpected{old.error()};
  std::string meta;
  std::istringstream lines{*old};
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("status:") && !line.starts_with("end_time:"))
      meta += line + '\n';
  return replace_file(file,
                      meta + "end_time: " + end + "\nstatus: " + number + '\n');
}

std::string mlflow_tree::new_meta(const std::string& status,
                                  const std::string& end) const {
  return "artifact_uri: " + yaml_text(uri_of(folder_ / "artifacts"))
         + "\nend_time: " + end + "\nentry_point_name: ''\nexperiment_id: '"
         + experiment_id_ + "'\nlifecycle_stage: active\nrun_id: "
         + yaml_text(id_) + "\nrun_name: " + yaml_text(run_.name)
         + "\nrun_uuid: " + yaml_text(id_)
         + "\nsource_name: ''\nsource_type: 4\nsource_version: ''"
           "\nstart_time: "
         + std::to_string(run_.start_ms) + "\nstatus: " + status
         + "\ntags: []\nuser_id: " + yaml_text(run_.user) + "\n";
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

expected<void> mlflow_tree::write_values(const char* what,
                                         std::span<const mlflow_pair> values) {
  std::set<fs::path> folders;
  for (const auto& x : values) {
    auto file = write_value(what, x);
    if (!file)
      return tl::unexpected{file.error()};
    add_folders(folders, folder_ / what, *file);
  }
  return sync_all(folders);
}

/// In one step, since an empty file would be an empty value. The file.
expected<fs::path> mlflow_tree::write_value(const char* what,
                                            const mlflow_pair& x) {
  auto place = place_of(what, x.key);
  if (!place)
    return tl::unexpected{place.error()};
  const auto file = folder_ / what / *place;
  if (auto ok = may_write(over_, file); !ok)
    return tl::unexpected{ok.error()};
  boost::system::error_code failed;
  fs::create_directories(file.parent_path(), failed);
  const auto temporary = folder_ / ".value.tmp"; // Where no reader looks.
  fs::remove(temporary, failed);
  if (auto ok = write_new_file(temporary, x.value); !ok)
    return tl::unexpected{ok.error()};
  fs::rename(temporary, file, failed);
  if (failed)
    return tl::unexpected{storage_error("write", file, failed.value())};
  return file;
}

sink_result mlflow_tree::log_metrics(std::span<const mlflow_metric> metrics) {
  std::map<std::string, std::string> lines;
  for (const auto& x : metrics)
    lines[x.key] += line_of(x);
  auto sizes = sizes_;
  std::set<fs::path> written;
  for (const auto& [key, text] : lines) {
    auto name = place_of("metrics", key);
    if (!name)
      return sink_fails(kind::transient, name.error());
    auto& size = sizes[*name];
    const auto file = folder_ / "metrics" / *name;
    if (auto ok = may_write(over_, file); !ok)
      return as_result(ok);
    if (size == 0)
      add_folders(written, folder_ / "metrics", file);
    auto grown =
      is_ours_ ? append_lines(file, size, text) : add_lines(file, size, text);
    if (!grown)
      return sink_fails(kind::transient, grown.error());
    size = *grown;
    written.insert(file);
  }
  // Once a batch and after all are written: then the disk has little to do for
  // each of them.
  if (auto ok = sync_all(written); !ok)
    return as_result(ok);
  sizes_ = std::move(sizes);
  return {};
}

sink_result mlflow_tree::log_params(std::span<const mlflow_pair> params) {
  if (auto ok = write_values("params", params); !ok)
    return as_result(ok);
  for (const auto& x : params)
    params_[x.key] = x.value;
  return {};
}

sink_result mlflow_tree::set_tags(std::span<const mlflow_pair> tags) {
  return as_result(write_values("tags", tags));
}

sink_result mlflow_tree::put_file(const fs::path& file,
                                  const std::string& name) {
  const auto copy = folder_ / "artifacts" / name;
  if (auto ok = may_write(over_, copy); !ok)
    return as_result(ok);
  return copy_artifact(file, copy);
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
