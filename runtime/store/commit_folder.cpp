#include "troupe/runtime/store/commit_folder.hpp"

#include <stdio.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <string>
#include <vector>

#include "troupe/runtime/checkpoint/staged_checkpoint.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

// In the staging folder: what becomes the checkpoint.
constexpr const char* whole_name = "whole";

// Moves staged files into one folder, and records what to fsync.
class gatherer {
public:
  gatherer(const held_folder& staging, const held_folder& whole)
    : staging_(staging), whole_(whole) {}

  expected<void> add(int rank, const checkpoint_part& part) {
    for (auto& file : part.files)
      TROUPE_TRY_VOID(add(rank, file));
    return {};
  }

  expected<void> sync_folders() const {
    for (auto& folder : folders_)
      TROUPE_TRY_VOID(whole_.existing(folder).and_then(
        [](const held_folder& x) { return x.sync(); }));
    return whole_.sync();
  }

private:
  expected<void> add(int rank, const file_entry& file) {
    if (!is_path_below(file.path) || file.path == manifest_file_name)
      return failure(ec::invalid_argument,
                     concat("rank ", rank, " adds the file '", file.path,
                            "', a name that no file of a checkpoint may have"));
    const fs::path path{file.path};
    TROUPE_TRY_VOID(enter(rank, path.parent_path()));
    auto name = path.filename().string();
    auto from = from_.path() / name;
    auto to = to_.path() / name;
    TROUPE_TRY(auto found, from_.look_up_link(name));
    if (!found.is_file())
      return failure(ec::storage, from.string() + " is not there any more");
    if (found.size != file.size)
      return failure(ec::corrupt,
                     concat(from.string(), " has ", found.size, " bytes; rank ",
                            rank, " reported ", file.size));
    if (::renameat(from_.descriptor().get(), name.c_str(),
                   to_.descriptor().get(), name.c_str())
        != 0)
      return tl::unexpected{
        storage_error("move " + from.string() + " to", to, errno)};
    return {};
  }

  // Opens the folder *path* of *rank*, and the one that its files go to. Files
  // come sorted: most lie in the same folder as the one before.
  expected<void> enter(int rank, const fs::path& path) {
    fs::path below{rank_folder(rank)};
    if (!path.empty())
      below /= path;
    if (below.native() == entered_)
      return {};
    TROUPE_TRY(auto from, staging_.existing(below));
    TROUPE_TRY(auto to, make_folders(path));
    from_ = std::move(from);
    to_ = std::move(to);
    entered_ = below.native();
    return {};
  }

  expected<held_folder> make_folders(const fs::path& path) {
    if (path.empty())
      return whole_.duplicate();
    if (folders_.contains(path.native()))
      return whole_.existing(path);
    auto result =
      make_folders(path.parent_path()).and_then([&](const held_folder& above) {
        return above.make_folder(path.filename().string());
      });
    if (result)
      folders_.insert(path.native());
    return result;
  }

  const held_folder& staging_;
  const held_folder& whole_;
  held_folder from_;
  held_folder to_;
  std::string entered_;           // what those two are
  std::set<std::string> folders_; // below `whole_`; as texts they compare fast
};

expected<void> gather(const held_folder& staging, const report_batch& batch,
                      manifest& x) {
  TROUPE_TRY(auto whole, staging.make_folder(whole_name));
  gatherer files{staging, whole};
  for (std::size_t rank = 0; rank < batch.parts.size(); ++rank) {
    auto& part = batch.parts[rank];
    if (!part)
      continue;
    TROUPE_TRY_VOID(files.add(static_cast<int>(rank), *part));
    std::ranges::copy_if(
      part->files, std::back_inserter(x.files),
      [](auto& file) { return file.path != metadata_file_name; });
  }
  std::ranges::sort(x.files, {}, &file_entry::path);
  failpoint("commit.gathered");
  auto text = to_json(x);
  TROUPE_TRY_VOID(
    check_size(whole.path() / manifest_file_name, text, max_manifest_bytes));
  TROUPE_TRY_VOID(whole.write_new_file(manifest_file_name, text));
  failpoint("commit.manifest_written");
  return files.sync_folders();
}

} // namespace

expected<void> commit_folder(const held_folder& checkpoints,
                             const report_batch& batch, manifest x,
                             const std::function<expected<void>()>& check) {
  auto name = staging_folder(x.attempt, batch.index);
  failpoint("commit.begun");
  auto done = checkpoints.existing(name).and_then([&](const held_folder& from) {
    return gather(from, batch, x)
      .and_then([&] {
        failpoint("commit.gathered_durably");
        return check ? check() : expected<void>{};
      })
      .and_then([&] {
        return from.rename_new(whole_name, checkpoints,
                               *batch.checkpoint_name());
      });
  });
  if (done) {
    failpoint("commit.renamed");
    done = checkpoints.sync();
  }
  failpoint("commit.parent_synced");
  // Otherwise the next start of the run does it.
  (void) checkpoints.remove_tree(name);
  failpoint("commit.staging_removed");
  return done;
}

} // namespace troupe::internal
