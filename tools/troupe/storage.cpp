#include "tools/troupe/storage.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "troupe/runtime/config/run_config.hpp"
#include "troupe/runtime/near_names.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/store/run_description.hpp"
#include "troupe/runtime/store/run_folder.hpp"
#include "troupe/runtime/sweep/sweep_store.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/whole_number.hpp"

namespace troupe::tool {

using namespace internal;

namespace {

/// *given* without a `.` at its end, so that the last part is a name.
expected<fs::path> plain_path(const std::string& given) {
  TROUPE_TRY(auto result, absolute_path(given));
  return result.filename_is_dot() ? result.parent_path() : result;
}

bool has_folders(const std::string& given) {
  return given.find('/') != given.npos || given == "." || given == "..";
}

/// Whether *given* says where it begins, so that it is not below the storage.
bool is_anchored(const std::string& given) {
  return given == "." || given == ".." || given.starts_with('/')
         || given.starts_with("./") || given.starts_with("../");
}

/// "the run a, the run b and the sweep c"
std::string names_of(const std::vector<fs::path>& runs,
                     const std::vector<fs::path>& sweeps) {
  std::vector<std::string> all;
  for (auto& x : runs)
    all.push_back("the run " + x.filename().string());
  for (auto& x : sweeps)
    all.push_back("the sweep " + x.filename().string());
  auto last = std::move(all.back());
  all.pop_back();
  return joined(all, ", ") + " and " + last;
}

} // namespace

expected<std::optional<found_id>> find_id(const std::string& id,
                                          const storage_content& storage) {
  std::vector<fs::path> runs, sweeps;
  for (auto& path : storage.runs)
    if (auto x = read_description(path); x && x->id.starts_with(id))
      runs.push_back(path);
  for (auto& path : storage.sweeps)
    if (auto x = read_sweep_description(path); x && x->id.starts_with(id))
      sweeps.push_back(path);
  if (runs.size() + sweeps.size() > 1)
    return failure(ec::invalid_argument,
                   concat("the id ", id, " is that of ", names_of(runs, sweeps),
                          ": give a name, or more digits"));
  if (!runs.empty())
    return found_id{runs.front(), false};
  if (!sweeps.empty())
    return found_id{sweeps.front(), true};
  return std::nullopt;
}

std::string shown_name(const fs::path& path) {
  auto name = path.filename().string();
  auto sweep = is_sweep(path.parent_path());
  return sweep && *sweep ? path.parent_path().filename().string() + '/' + name
                         : name;
}

bool is_id(const std::string& text) {
  return text.size() >= 6 && is_hex(text);
}

expected<bool> is_run(const fs::path& path) {
  auto found = expect_run_folder(path);
  if (found)
    return true;
  if (found.error().code == ec::invalid_argument)
    return false;
  return tl::unexpected{found.error()};
}

expected<storage_content> look_into(const fs::path& path) {
  TROUPE_TRY(auto found, look_up(path));
  if (!found.exists())
    return failure(ec::invalid_argument, "there is no folder " + path.string());
  if (!found.is_folder())
    return failure(ec::invalid_argument, path.string() + " is not a folder");
  TROUPE_TRY(auto itself, is_run(path));
  if (itself)
    return failure(ec::invalid_argument,
                   path.string() + " is a run, not a folder of runs: ask for "
                     + path.parent_path().string());
  storage_content result;
  result.path = path;
  boost::system::error_code code;
  for (fs::directory_iterator i{path, code}, end; !code && i != end;
       i.increment(code)) {
    auto& entry = i->path();
    auto name = entry.filename().string();
    auto what = look_up(entry);
    if (!what) {
      result.strange.push_back({entry, what.error()});
      continue;
    }
    if (!what->is_folder() || is_replaced_run(name))
      continue;
    auto run = is_run(entry);
    auto sweep = is_sweep(entry);
    auto is_ours = run && sweep && (*run || *sweep);
    if (name == run_layout::mlflow_tree && !is_ours)
      continue;
    if (!run || !sweep)
      result.strange.push_back({entry, run ? sweep.error() : run.error()});
    else if (*run)
      result.runs.push_back(entry);
    else if (*sweep)
      result.sweeps.push_back(entry);
    else if (!name.starts_with('.'))
      result.strange.push_back(
        {entry, {ec::invalid_argument, "not the folder of a run"}});
  }
  if (code)
    return tl::unexpected{storage_error("read folder", path, code.value())};
  std::ranges::sort(result.runs);
  std::ranges::sort(result.sweeps);
  std::ranges::sort(result.strange, {}, &strange_folder::path);
  auto is_foreign = [](const strange_folder& x) {
    return x.reason.code == ec::invalid_argument;
  };
  if (result.runs.empty() && result.sweeps.empty() && !result.strange.empty()
      && std::ranges::all_of(result.strange, is_foreign))
    return failure(ec::invalid_argument,
                   concat(path.string(), " is not a folder of runs: ",
                          result.strange.size() == 1
                            ? std::string{"its only folder is not a run"}
                            : concat("none of its ", result.strange.size(),
                                     " folders is a run")));
  return result;
}

expected<fs::path> storage_folder(const std::string& given) {
  auto variable = std::getenv("TROUPE_STORAGE");
  run_config x;
  if (!given.empty())
    x.storage_path = given;
  else if (variable && *variable)
    x.storage_path = variable;
  TROUPE_TRY_VOID(validate(x));
  return plain_path(resolve(std::move(x)).storage_path.string());
}

// The runs of a sweep are named as in `lr-search/trial-0003`.
expected<std::vector<fs::path>> paths_named(const std::string& given,
                                            const fs::path& storage) {
  TROUPE_TRY(auto as_path, plain_path(given));
  TROUPE_TRY(auto in_storage, plain_path((storage / given).string()));
  if (is_anchored(given))
    return std::vector{as_path};
  // Then it may be the sweep itself.
  if (has_folders(given)
      && given.substr(0, given.find('/')) == storage.filename().string()
      && is_sweep(storage).value_or(false))
    return std::vector{as_path, in_storage, storage.parent_path() / given};
  return has_folders(given) ? std::vector{as_path, in_storage}
                            : std::vector{in_storage, as_path};
}

namespace {

tl::unexpected<error> refuse_sweep(const fs::path& path) {
  return failure(ec::invalid_argument,
                 concat(path.string(),
                        " is a sweep, and not a run: troupe show lists its "
                        "trials, which are named as in ",
                        path.filename().string(), '/', trial_name(0)));
}

/// Where the run *given* was looked for in vain, and how near names begin
/// there.
struct search_place {
  fs::path folder;
  std::string prefix; ///< "lr-search/" of the trials of a sweep.
  std::string name;   ///< That is not in the folder.
  std::string reason;
};

/// Of `NAME/trial-0000`, the sweep in *storage* is meant, if there is one, and
/// else a folder NAME here.
expected<search_place> place_of(const std::string& given,
                                const fs::path& storage) {
  auto in_storage = "there is no run " + given + " in " + storage.string();
  if (!has_folders(given))
    return search_place{storage, "", given, in_storage};
  TROUPE_TRY(auto as_path, plain_path(given));
  search_place here{as_path.parent_path(), "", as_path.filename().string(),
                    "there is no folder " + as_path.string()};
  TROUPE_TRY(auto paths, paths_named(given, storage));
  if (paths.size() == 1)
    return here;
  auto& trial = paths.back();
  auto sweep = trial.parent_path();
  TROUPE_TRY(auto is_trial, is_sweep(sweep));
  if (is_trial)
    return search_place{sweep, sweep.filename().string() + '/',
                        trial.filename().string(), in_storage};
  TROUPE_TRY(auto folder, look_up(here.folder));
  if (folder.is_folder())
    return here;
  auto first = given.substr(0, given.find('/'));
  return search_place{storage, "", first,
                      "there is no run or sweep " + first + " in "
                        + storage.string()};
}

} // namespace

expected<fs::path> find_run(const std::string& given, const fs::path& storage) {
  TROUPE_TRY(auto paths, paths_named(given, storage));
  auto is_path = has_folders(given);
  for (auto& path : paths) {
    TROUPE_TRY(auto found, look_up(path));
    if (!found.exists())
      continue;
    TROUPE_TRY(auto run, is_run(path));
    if (run)
      return path;
    TROUPE_TRY(auto sweep, is_sweep(path));
    if (sweep)
      return refuse_sweep(path);
    if (is_path || path == paths.front())
      return expect_run_folder(path).map([&] { return path; });
  }
  TROUPE_TRY(auto place, place_of(given, storage));
  auto among = look_into(place.folder);
  if (!among && among.error().code != ec::invalid_argument)
    return tl::unexpected{among.error()};
  std::vector<std::string> names;
  if (among)
    for (auto all : {&among->runs, &among->sweeps})
      for (auto& x : *all)
        names.push_back(place.prefix + x.filename().string());
  if (!is_path && among && is_id(given)) {
    TROUPE_TRY(auto found, find_id(given, *among));
    if (found)
      return found->is_sweep ? expected<fs::path>{refuse_sweep(found->path)}
                             : found->path;
  }
  return failure(
    ec::invalid_argument,
    place.reason
      + did_you_mean(place.prefix + place.name, {names.begin(), names.end()}));
}

} // namespace troupe::tool
