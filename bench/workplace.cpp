#include "workplace.hpp"

#include <cstdlib>
#include <stdexcept>
#include <vector>

#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace troupe::internal::bench {

namespace {

bool on_disk(const fs::path& folder) {
  struct statfs info {};
  return ::statfs(folder.c_str(), &info) == 0 && info.f_type != TMPFS_MAGIC
         && ::access(folder.c_str(), W_OK) == 0;
}

fs::path best_place() {
  std::vector<fs::path> places{"build", "."};
  if (auto folder = std::getenv("TMPDIR"); folder && *folder)
    places.insert(places.begin(), folder);
  for (auto& place : places)
    if (on_disk(place))
      return place;
  return ".";
}

} // namespace

run_config quiet_run(const fs::path& storage, std::string name) {
  run_config result;
  result.name = std::move(name);
  result.storage_path = storage;
  result.quiet = true;
  return result;
}

workplace::workplace() {
  auto name = (fs::absolute(best_place()) / "troupe_bench-XXXXXX").string();
  if (!::mkdtemp(name.data()))
    throw std::runtime_error{"cannot make the folder " + name};
  path_ = name;
}

workplace::~workplace() {
  boost::system::error_code code;
  fs::remove_all(path_, code);
}

std::string workplace::new_path(const std::string& name) {
  return (path_ / (name + "-" + std::to_string(given_out_++))).string();
}

run_config workplace::new_run() {
  return quiet_run(path_, "run-" + std::to_string(given_out_++));
}

} // namespace troupe::internal::bench
