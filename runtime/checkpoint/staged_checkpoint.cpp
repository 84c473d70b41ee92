#include "troupe/runtime/checkpoint/staged_checkpoint.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
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
  std::ranges::sort(result);
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
    result.push_back({paths[i].lexically_relative(root).generic_string(),
                      digest->size, digest->checksum});
  }
  for (std::size_t i = 0; i < paths.size(); ++i)
    if (auto ok = sync_file(files[i], paths[i]); !ok)
      return ok;
  return {};
}

void remove_quietly(const fs::path& path) {
  if (path.empty())
    return;
  boost::system::error_code code;
  fs::remove_all(path, code);
  fs::remove(path.parent_path(), code); // if no other rank has files there
}

} // namespace

expected<staged_checkpoint> staged_checkpoint::create(const fs::path& run_path,
                                                      std::uint64_t attempt,
                                                      std::uint64_t index,
                                                      int rank) {
  auto path = staging_folder(run_path, attempt, index) / rank_folder(rank);
  // A second one for the same report replaces the first.
  if (auto ok = remove_tree(path); !ok)
    return tl::unexpected{ok.error()};
  // The folder above is the run's own: where it is gone, nothing would keep
  // what is written.
  for (auto& folder : {path.parent_path(), path}) {
    boost::system::error_code code;
    fs::create_directory(folder, code); // Another rank may be faster.
    if (code)
      return tl::unexpected{storage_error("make folder", folder, code.value())};
  }
  return staged_checkpoint{std::move(path)};
}

staged_checkpoint::staged_checkpoint(staged_checkpoint&& other) noexcept
  : path_(std::move(other.path_)) {
  other.path_.clear();
}

staged_checkpoint&
staged_checkpoint::operator=(staged_checkpoint&& other) noexcept {
  std::swap(path_, other.path_);
  return *this;
}

staged_checkpoint::~staged_checkpoint() {
  remove_quietly(path_);
}

expected<void> staged_checkpoint::add_directory(const fs::path& source,
                                                bool move) {
  return copy_files(source, path_, move);
}

expected<std::vector<file_entry>> staged_checkpoint::seal() {
  auto paths = list_files(path_);
  if (!paths)
    return tl::unexpected{paths.error()};
  if (paths->empty())
    return failure(ec::invalid_argument,
                   "the checkpoint in " + path_.string() + " has no files");
  auto own = path_ / manifest_file_name;
  if (std::ranges::binary_search(*paths, own))
    return failure(ec::invalid_argument,
                   own.string() + " has the name of the run's own manifest");
  std::vector<file_entry> result;
  for (auto rest = std::span<const fs::path>{*paths}; !rest.empty();) {
    auto some = rest.first(std::min(rest.size(), files_at_once));
    if (auto ok = seal_files(some, path_, result); !ok)
      return tl::unexpected{ok.error()};
    rest = rest.subspan(some.size());
  }
  path_.clear();
  return result;
}

} // namespace troupe
