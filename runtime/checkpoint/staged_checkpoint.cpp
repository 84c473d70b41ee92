#include "troupe/runtime/checkpoint/staged_checkpoint.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <span>
#include <string>
#include <utility>

#include "troupe/runtime/checkpoint/copy_files.hpp"
#include "troupe/runtime/checkpoint/manifest.hpp"
#include "troupe/runtime/checkpoint/staging.hpp"
#include "troupe/runtime/storage/checksum.hpp"
#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe {

namespace {

// Every file below *root*, sorted.
expected<std::vector<fs::path>> list_files(const fs::path& root) {
  std::vector<fs::path> result;
  boost::system::error_code code;
  auto i = fs::recursive_directory_iterator{root, code};
  for (; !code && i != fs::recursive_directory_iterator{}; i.increment(code)) {
    auto found = look_up_link(i->path());
    if (!found)
      return tl::unexpected{found.error()};
    if (found->is_file())
      result.push_back(i->path());
    else if (!found->is_folder())
      return failure(ec::invalid_argument,
                     i->path().string()
                       + " is neither a file nor a folder; a checkpoint holds "
                         "nothing else");
  }
  if (code)
    return tl::unexpected{storage_error("list", root, code.value())};
  // As texts: to compare paths part by part takes a minute for a million.
  std::ranges::sort(result, {}, &fs::path::native);
  return result;
}

// Files that are sealed together: their descriptors are open at once.
constexpr std::size_t files_at_once = 64;

// Has the disk write all *paths* while their checksums are computed, and waits
// for it in the end.
expected<void> seal_files(std::span<const fs::path> paths, const fs::path& root,
                          std::vector<file_entry>& result) {
  std::vector<unique_fd> files;
  for (auto& path : paths) {
    auto file = open_file(path, O_RDONLY, "open");
    if (!file)
      return tl::unexpected{file.error()};
    ::sync_file_range(file->get(), 0, 0, SYNC_FILE_RANGE_WRITE);
    files.push_back(std::move(*file));
  }
  for (std::size_t i = 0; i < paths.size(); ++i) {
    auto digest = digest_file(files[i], paths[i]);
    if (!digest)
      return tl::unexpected{digest.error()};
    result.push_back({paths[i].native().substr(root.native().size() + 1),
                      digest->size, digest->checksum});
  }
  for (std::size_t i = 0; i < paths.size(); ++i)
    if (auto ok = sync_file(files[i], paths[i]); !ok)
      return ok;
  return {};
}

void remove_quietly(const fs::path& path) {
  boost::system::error_code code;
  if (!path.empty())
    fs::remove_all(path, code);
}

} // namespace

expected<staged_checkpoint> staged_checkpoint::create(const fs::path& run_path,
                                                      std::uint64_t attempt,
                                                      int rank) {
  static std::atomic<std::uint64_t> serial = 0;
  for (;;) {
    auto path = working_folder(run_path, attempt, rank, serial++);
    // The folder above is the run's own: where it is gone, nothing would keep
    // what is written.
    if (::mkdir(path.c_str(), 0700) == 0)
      return staged_checkpoint{run_path, attempt, rank, std::move(path)};
    if (errno != EEXIST) // What a start of the same attempt left stays.
      return tl::unexpected{storage_error("make folder", path, errno)};
  }
}

staged_checkpoint::staged_checkpoint(staged_checkpoint&& other) noexcept
  : run_path_(std::move(other.run_path_)), attempt_(other.attempt_),
    rank_(other.rank_), path_(std::move(other.path_)),
    sources_(std::move(other.sources_)) {
  other.path_.clear();
}

staged_checkpoint&
staged_checkpoint::operator=(staged_checkpoint&& other) noexcept {
  std::swap(run_path_, other.run_path_);
  std::swap(attempt_, other.attempt_);
  std::swap(rank_, other.rank_);
  std::swap(path_, other.path_);
  std::swap(sources_, other.sources_);
  return *this;
}

staged_checkpoint::~staged_checkpoint() {
  remove_quietly(path_);
}

expected<void> staged_checkpoint::add_directory(const fs::path& source,
                                                bool move) {
  if (!move)
    return copy_files(source, path_);
  return link_files(source, path_).map([&](std::vector<fs::path> files) {
    sources_.insert(sources_.end(), files.begin(), files.end());
  });
}

expected<checkpoint_part> staged_checkpoint::seal(std::uint64_t index,
                                                  std::string name) {
  auto paths = list_files(path_);
  if (!paths)
    return tl::unexpected{paths.error()};
  if (paths->empty())
    return failure(ec::invalid_argument,
                   "the checkpoint in " + path_.string() + " has no files");
  auto own = path_ / manifest_file_name;
  if (std::ranges::binary_search(*paths, own.native(), {}, &fs::path::native))
    return failure(ec::invalid_argument,
                   own.string() + " has the name of the run's own manifest");
  checkpoint_part result{std::move(name), {}, 0};
  for (auto rest = std::span<const fs::path>{*paths}; !rest.empty();) {
    auto some = rest.first(std::min(rest.size(), files_at_once));
    if (auto ok = seal_files(some, path_, result.files); !ok)
      return tl::unexpected{ok.error()};
    rest = rest.subspan(some.size());
  }
  auto staging = staging_folder(run_path_, attempt_, index);
  if (auto ok = hand_over(staging); !ok)
    return tl::unexpected{ok.error()};
  if (!is_long_list(result.files))
    return result;
  result.listed = result.files.size();
  return write_file_list(staging / rank_list_file(rank_),
                         std::exchange(result.files, {}))
    .map([&] { return std::move(result); });
}

// Renames the folder to where the commit looks for this rank's files.
expected<void> staged_checkpoint::hand_over(const fs::path& staging) {
  auto to = staging / rank_folder(rank_);
  if (::mkdir(staging.c_str(), 0700) != 0 && errno != EEXIST)
    return tl::unexpected{storage_error("make folder", staging, errno)};
  // What a start of the same attempt left that did not come up.
  boost::system::error_code code;
  fs::remove(staging / rank_list_file(rank_), code);
  if (auto ok = remove_tree(to); !ok)
    return ok;
  if (::rename(path_.c_str(), to.c_str()) != 0)
    return tl::unexpected{
      storage_error("rename " + path_.string() + " to", to, errno)};
  path_.clear();
  return {};
}

void staged_checkpoint::remove_sources() noexcept {
  boost::system::error_code code;
  for (auto& path : sources_)
    fs::remove(path, code);
  sources_.clear();
}

} // namespace troupe
