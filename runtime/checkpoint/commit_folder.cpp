#include "troupe/runtime/checkpoint/commit_folder.hpp"

#include <stdio.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <string>
#include <vector>

#include "troupe/runtime/checkpoint/staging.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe {

namespace {

// Moves staged files into one folder, and remembers what to fsync.
class gatherer {
public:
  gatherer(fs::path staging, fs::path whole)
    : staging_(std::move(staging)), whole_(std::move(whole)) {
    folders_.insert(whole_.native());
  }

  expected<void> add(int rank, const checkpoint_part& part) {
    for (auto& file : part.files)
      if (auto ok = add(rank, file); !ok)
        return ok;
    return {};
  }

  expected<void> sync_folders() const {
    for (auto& folder : folders_)
      if (auto ok = sync_folder(folder); !ok)
        return ok;
    return {};
  }

private:
  expected<void> add(int rank, const file_entry& file) {
    if (!is_path_below(file.path) || file.path == manifest_file_name)
      return failure(ec::invalid_argument,
                     "rank " + std::to_string(rank) + " adds the file '"
                       + file.path
                       + "', a name that no file of a checkpoint may have");
    auto from = staging_ / rank_folder(rank) / file.path;
    auto to = whole_ / file.path;
    auto found = look_up_link(from);
    if (!found)
      return tl::unexpected{found.error()};
    if (!found->is_file())
      return failure(ec::storage, from.string() + " is not there any more");
    if (found->size != file.size)
      return failure(ec::corrupt, from.string() + " has "
                                    + std::to_string(found->size)
                                    + " bytes; rank " + std::to_string(rank)
                                    + " reported " + std::to_string(file.size));
    if (auto ok = add_folder(to.parent_path()); !ok)
      return ok;
    if (::rename(from.c_str(), to.c_str()) != 0)
      return tl::unexpected{
        storage_error("move " + from.string() + " to", to, errno)};
    return {};
  }

  expected<void> add_folder(const fs::path& path) {
    if (folders_.contains(path.native()))
      return {};
    if (auto ok = add_folder(path.parent_path()); !ok)
      return ok;
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
      return tl::unexpected{storage_error("make folder", path, errno)};
    folders_.insert(path.native());
    return {};
  }

  fs::path staging_;
  fs::path whole_;
  std::set<std::string> folders_; // paths; as texts they compare fast
};

expected<void> gather(const fs::path& staging, const fs::path& whole,
                      const report_batch& batch, manifest& x) {
  // The staging folder above exists, or else the storage is gone: then nothing
  // is made anew.
  if (::mkdir(whole.c_str(), 0700) != 0 && errno != EEXIST)
    return tl::unexpected{storage_error("make folder", whole, errno)};
  gatherer files{staging, whole};
  for (std::size_t rank = 0; rank < batch.parts.size(); ++rank) {
    auto& part = batch.parts[rank];
    if (!part)
      continue;
    if (auto ok = files.add(static_cast<int>(rank), *part); !ok)
      return ok;
    std::ranges::copy_if(
      part->files, std::back_inserter(x.files),
      [](auto& file) { return file.path != metadata_file_name; });
  }
  std::ranges::sort(x.files, {}, &file_entry::path);
  failpoint("commit.gathered");
  const auto file = whole / manifest_file_name;
  const auto text = to_json(x);
  if (auto ok = check_size(file, text, max_manifest_bytes); !ok)
    return ok;
  if (auto ok = write_new_file(file, text); !ok)
    return ok;
  failpoint("commit.manifest_written");
  return files.sync_folders();
}

} // namespace

expected<void> commit_folder(const fs::path& run_path,
                             const report_batch& batch, manifest x,
                             const std::function<expected<void>()>& check) {
  auto staging = staging_folder(run_path, x.attempt, batch.index);
  auto target = run_path / "checkpoints" / *batch.checkpoint_name();
  failpoint("commit.begun");
  auto done =
    gather(staging, staging / "whole", batch, x)
      .and_then([&] {
        failpoint("commit.gathered_durably");
        return check ? check() : expected<void>{};
      })
      .and_then([&] { return rename_new(staging / "whole", target); });
  if (done) {
    failpoint("commit.renamed");
    done = sync_folder(target.parent_path());
  }
  failpoint("commit.parent_synced");
  (void) remove_tree(staging); // otherwise the next start of the run does it
  failpoint("commit.staging_removed");
  return done;
}

} // namespace troupe
