#include "troupe/runtime/checkpoint/copy_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>
#include <utility>

#include "troupe/runtime/checkpoint/manifest.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/file_copy.hpp"

namespace troupe::internal {

namespace {

/// The target folder of a copy, held by a descriptor.
struct target_folder {
  unique_fd folder;
  fs::path path;
  mode_t mode;  ///< Of folders that are made in it.
  int no_links; ///< `O_NOFOLLOW`, or 0: a user's folder may have links.

  /// Opens the folder *name* in it; one that is missing is made.
  expected<target_folder> below(const fs::path& name) const {
    if (::mkdirat(folder.get(), name.c_str(), mode) != 0 && errno != EEXIST)
      return tl::unexpected{storage_error("make folder", path / name, errno)};
    unique_fd next{::openat(folder.get(), name.c_str(),
                            O_RDONLY | O_DIRECTORY | O_CLOEXEC | no_links)};
    if (!next)
      return tl::unexpected{storage_error("use folder", path / name, errno)};
    return target_folder{std::move(next), path / name, mode, no_links};
  }
};

expected<void> replace_by_copy(const fs::path& from, const target_folder& to,
                               const fs::path& name) {
  return open_file(from, O_RDONLY, "read").and_then([&](const unique_fd& in) {
    return replace_by_copy(in, from, {to.folder.get(), name, to.path / name},
                           copy_sync::no);
  });
}

/// Why a copy into *target* would copy itself endlessly; nothing if it would
/// not. *target* need not exist.
expected<void> check_apart(const fs::path& source, const fs::path& target) {
  if (source.empty())
    return failure(ec::invalid_argument,
                   "the path of the folder to copy is empty");
  boost::system::error_code code;
  auto outer = fs::weakly_canonical(source, code);
  if (code)
    return tl::unexpected{storage_error("look up", source, code.value())};
  auto inner = fs::weakly_canonical(target, code);
  if (code)
    return tl::unexpected{storage_error("look up", target, code.value())};
  auto rest =
    std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  if (rest.first == outer.end())
    return failure(ec::invalid_argument, target.string() + " lies in "
                                           + source.string()
                                           + ", which is to be copied there");
  return {};
}

expected<void> make_folder(const fs::path& path) {
  boost::system::error_code code;
  fs::create_directories(path, code);
  if (code)
    return tl::unexpected{storage_error("make folder", path, code.value())};
  return {};
}

expected<target_folder> open_target(const fs::path& path) {
  return make_folder(path)
    .and_then(
      [&] { return open_file(path, O_RDONLY | O_DIRECTORY, "open folder"); })
    .map([&](unique_fd x) {
      return target_folder{std::move(x), path, 0777, 0};
    });
}

expected<target_folder> open_target(const held_folder& x) {
  return x.duplicate().map([&](held_folder copy) {
    return target_folder{std::move(copy).release(), x.path(), 0700, O_NOFOLLOW};
  });
}

/// The folder *target* and those that it lies in, as far as they can be looked
/// up: it may have been renamed.
std::vector<struct stat> with_folders_above(const unique_fd& target) {
  std::vector<struct stat> result;
  unique_fd above;
  for (auto folder = target.get();; folder = above.get()) {
    struct stat found {};
    if (::fstat(folder, &found) != 0
        || (!result.empty() && is_same_file(result.back(), found)))
      return result;
    result.push_back(found);
    unique_fd next{::openat(folder, "..", O_PATH | O_DIRECTORY | O_CLOEXEC)};
    if (!next)
      return result;
    above = std::move(next);
  }
}

/// The manifest in *folder*; nothing if there is none, or a user's own file of
/// that name.
expected<std::optional<manifest>> manifest_in(const fs::path& folder) {
  TROUPE_TRY(auto file, look_up(folder / manifest_file_name));
  if (!file.exists())
    return std::nullopt;
  auto found = read_manifest(folder);
  if (found)
    return std::optional{std::move(*found)};
  if (found.error().code != ec::corrupt)
    return tl::unexpected{std::move(found.error())};
  return std::nullopt;
}

/// Whether *folder*, a path without links, is a checkpoint that a run has, even
/// if its manifest is damaged.
expected<bool> is_checkpoint_of_run(const fs::path& folder) {
  if (folder.parent_path().filename() != run_layout::checkpoints)
    return false;
  return look_up(folder / manifest_file_name).map([](const auto& x) {
    return x.exists();
  });
}

/// A folder that is copied, and how the copy came to it.
struct source_folder {
  fs::path path; ///< As it was given.
  fs::path real; ///< Without links; unset for what belongs to others.
  struct stat identity;
  /// Its files are not those of the folder that is copied: it lies behind a
  /// link, or in a checkpoint that a run has.
  bool belongs_to_others = false;
  const source_folder* above = nullptr;
};

/// The folder *path*, found in *above* (nullptr: it is the one to copy).
/// Refuses one that would be copied without end: it leads back to a folder on
/// the way, or to one of *targets*.
expected<source_folder> enter(const fs::path& path, const source_folder* above,
                              const std::vector<struct stat>& targets) {
  source_folder result{path, {}, {}, false, above};
  if (::stat(path.c_str(), &result.identity) != 0)
    return tl::unexpected{storage_error("look up", path, errno)};
  auto is_this = [&](const struct stat& x) {
    return is_same_file(x, result.identity);
  };
  for (auto x = above; x; x = x->above)
    if (is_this(x->identity))
      return failure(ec::invalid_argument,
                     path.string() + " leads back to " + x->path.string()
                       + ": a copy that follows it has no end");
  if (std::ranges::any_of(targets, is_this))
    return failure(ec::invalid_argument,
                   path.string()
                     + " leads to a folder in which the copy is made: the copy "
                       "would contain itself");
  if (above) {
    TROUPE_TRY(auto itself, look_up_link(path));
    result.belongs_to_others = above->belongs_to_others || itself.is_link();
    if (!result.belongs_to_others) {
      result.real = above->real / path.filename();
      TROUPE_TRY(result.belongs_to_others, is_checkpoint_of_run(result.real));
    }
    return result;
  }
  boost::system::error_code code;
  auto place = fs::canonical(path, code);
  if (code)
    return tl::unexpected{storage_error("look up", path, code.value())};
  result.real = place;
  for (; place.has_relative_path() && !result.belongs_to_others;
       place = place.parent_path()) {
    TROUPE_TRY(result.belongs_to_others, is_checkpoint_of_run(place));
  }
  return result;
}

/// Whether the file *name* belongs to the folder *source* only and must not be
/// copied: a run committed the folder, and its manifest does not list the file.
/// Any other file is the user's.
expected<bool> is_source_only(const fs::path& source, const std::string& name) {
  if (!is_own_file(name))
    return false;
  return manifest_in(source).map([&](const std::optional<manifest>& x) {
    return x
           && std::ranges::find(x->files, name, &file_entry::path)
                == x->files.end();
  });
}

/// Calls *place* with every file in *from* and below, its target folder and
/// name, and the folder it lies in.
template <class Place>
expected<void>
for_each_file(const source_folder& from, const target_folder& target,
              const std::vector<struct stat>& targets, const Place& place) {
  boost::system::error_code code;
  for (fs::directory_iterator i{from.path, code}, end; !code && i != end;
       i.increment(code)) {
    auto name = i->path().filename();
    TROUPE_TRY(auto found, look_up(i->path()));
    if (found.is_folder()) {
      TROUPE_TRY(auto folder, enter(i->path(), &from, targets));
      TROUPE_TRY_VOID(target.below(name).and_then([&](const target_folder& to) {
        return for_each_file(folder, to, targets, place);
      }));
    } else {
      TROUPE_TRY(auto stays,
                 from.above ? false : is_source_only(from.path, name.string()));
      if (!stays && !is_unfinished_copy(i->path()))
        TROUPE_TRY_VOID(place(i->path(), target, name, from));
    }
  }
  if (code)
    return tl::unexpected{storage_error("list", from.path, code.value())};
  return {};
}

template <class Place>
expected<void> for_each_file(const fs::path& source,
                             const target_folder& target, const Place& place) {
  TROUPE_TRY(auto folder, look_up(source));
  if (!folder.is_folder())
    return failure(ec::storage,
                   "there is no checkpoint folder " + source.string());
  auto targets = with_folders_above(target.folder);
  TROUPE_TRY(auto top, enter(source, nullptr, targets));
  return for_each_file(top, target, targets, place);
}

expected<void> copy_all(const fs::path& source, const target_folder& target) {
  return for_each_file(
    source, target,
    [](const fs::path& from, const target_folder& to, const fs::path& name,
       const source_folder&) { return replace_by_copy(from, to, name); });
}

} // namespace

expected<void> copy_files(const fs::path& source, const fs::path& target) {
  return check_apart(source, target)
    .and_then([&] { return open_target(target); })
    .and_then([&](const target_folder& to) { return copy_all(source, to); });
}

expected<void> copy_files(const fs::path& source, const held_folder& target) {
  return check_apart(source, target.path())
    .and_then([&] { return open_target(target); })
    .and_then([&](const target_folder& to) { return copy_all(source, to); });
}

expected<std::vector<fs::path>> link_files(const fs::path& source,
                                           const held_folder& target) {
  std::vector<fs::path> result;
  auto link = [&](const fs::path& from, const target_folder& to,
                  const fs::path& name,
                  const source_folder& above) -> expected<void> {
    if (above.belongs_to_others)
      return replace_by_copy(from, to, name);
    result.push_back(from);
    TROUPE_TRY(auto found, look_up_link(from));
    // Another file system, one without links, a file of another user, a
    // symbolic link, one that may still be written to by another name: a copy.
    if (!found.is_file() || found.links > 1
        || ::linkat(AT_FDCWD, from.c_str(), to.folder.get(), name.c_str(), 0)
             != 0)
      return replace_by_copy(from, to, name);
    return {};
  };
  return check_apart(source, target.path())
    .and_then([&] { return open_target(target); })
    .and_then(
      [&](const target_folder& to) { return for_each_file(source, to, link); })
    .map([&] { return std::move(result); });
}

expected<std::vector<std::string>>
shared_files(const held_folder& folder, const std::vector<file_entry>& files) {
  std::vector<std::string> result;
  for (auto& file : files) {
    TROUPE_TRY(auto found, folder.look_up_link(file.path));
    if (found.is_file() && found.links > 1)
      result.push_back(file.path);
  }
  return result;
}

expected<void> separate_file(const held_folder& folder, const fs::path& path,
                             const held_folder& staging) {
  TROUPE_TRY(auto above, path.has_parent_path()
                           ? folder.existing(path.parent_path())
                           : folder.duplicate());
  auto name = path.filename().string();
  auto whole = above.path() / name;
  TROUPE_TRY(auto in, above.open_file(name, O_RDONLY, "read"));
  copy_target copy{staging.descriptor().get(), "copy", staging.path() / "copy"};
  TROUPE_TRY_VOID(replace_by_copy(in, whole, copy, copy_sync::yes));
  if (::renameat(copy.folder, copy.name.c_str(), above.descriptor().get(),
                 name.c_str())
      != 0)
    return tl::unexpected{storage_error("replace", whole, errno)};
  return above.sync();
}

} // namespace troupe::internal
