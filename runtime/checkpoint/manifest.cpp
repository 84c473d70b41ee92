#include "troupe/runtime/checkpoint/manifest.hpp"

#include <fcntl.h>

#include <algorithm>
#include <set>

#include "troupe/runtime/path_component.hpp"
#include "troupe/runtime/storage/checksum.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/json_fields.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

expected<void> validate_checkpoint_name(const std::string& name) {
  if (name.empty())
    return failure(ec::invalid_argument, "a checkpoint's name is empty");
  if (name[0] == '.' || !is_path_component(name))
    return failure(ec::invalid_argument,
                   "the checkpoint name '" + name.substr(0, 200)
                     + "' is not one path component: no '/', no control "
                       "characters, no dot in front, at most 200 bytes");
  return {};
}

tl::unexpected<error> name_is_taken(const std::string& name) {
  return failure(ec::conflict,
                 "the checkpoint name '" + name
                   + "' is taken: the run has a checkpoint of that name, or "
                     "something else lies in checkpoints/"
                   + name);
}

namespace {

tl::unexpected<error> differs(const fs::path& file, const std::string& how) {
  return failure(ec::corrupt, file.string() + ' ' + how);
}

// A checkpoint's folder: a path, or one by its name in an open folder. It is
// only read, so it may be a link.
struct place {
  int above;
  fs::path name;
  fs::path path; // for messages

  expected<file_status> look_up(const fs::path& file, int flags) const {
    return look_up_at(above, name / file, path / file, flags);
  }

  expected<unique_fd> open(const fs::path& file) const {
    return open_to_read_at(above, name / file, path / file, O_RDONLY, "open");
  }
};

place place_of(const fs::path& folder) {
  return {AT_FDCWD, folder, folder};
}

place place_of(const held_folder& above, const std::string& name) {
  return {above.descriptor().get(), name, above.path() / name};
}

expected<void> verify_file(const place& folder, const file_entry& x) {
  auto path = folder.path / x.path;
  TROUPE_TRY(auto found, folder.look_up(x.path, AT_SYMLINK_NOFOLLOW));
  if (!found.is_file())
    return differs(path, "is missing");
  if (found.size != x.size)
    return differs(
      path, concat("has ", found.size, " bytes, its manifest says ", x.size));
  TROUPE_TRY(auto file, folder.open(x.path));
  TROUPE_TRY(auto digest, digest_file(file, path));
  if (digest.size != x.size || digest.checksum != x.checksum)
    return differs(path, "has checksum " + checksum_text(digest.checksum)
                           + ", its manifest says "
                           + checksum_text(x.checksum));
  return {};
}

expected<void> verify_all(const place& folder, const manifest& x) {
  for (auto& file : x.files)
    TROUPE_TRY_VOID(verify_file(folder, file));
  return {};
}

expected<manifest> read_from(const place& folder) {
  auto file = folder.path / manifest_file_name;
  auto above = look_up_at(folder.above, folder.name, folder.path, 0);
  auto found = folder.look_up(manifest_file_name, 0);
  if (!above || !found)
    return tl::unexpected{above ? found.error() : above.error()};
  if (!above->is_folder())
    return failure(ec::corrupt,
                   above->exists()
                     ? folder.path.string() + " is not a checkpoint folder"
                     : "there is no checkpoint folder " + folder.path.string());
  if (!found->exists())
    return failure(ec::corrupt, folder.path.string() + " has no "
                                  + manifest_file_name
                                  + ": no run committed it");
  if (!found->is_file())
    return failure(ec::corrupt,
                   file.string() + " is not a file: no run committed it");
  return folder.open(manifest_file_name)
    .and_then([&](const unique_fd& open) {
      return read_open_file(open, file, max_manifest_bytes);
    })
    .and_then(
      [&](const std::string& text) { return manifest_from_json(text, file); });
}

} // namespace

bool is_own_file(std::string_view path) {
  return path == manifest_file_name
         || path.starts_with(metadata_file_name + std::string{"."});
}

bool is_path_below(std::string_view path) noexcept {
  for (;;) {
    auto slash = path.find('/');
    auto part = path.substr(0, slash);
    if (part.empty() || part == "." || part == ".."
        || part.find('\0') != std::string_view::npos)
      return false;
    if (slash == std::string_view::npos)
      return true;
    path.remove_prefix(slash + 1);
  }
}

namespace json {

static std::string to_path_below(const document& x) {
  auto path = to_text(x);
  if (!is_path_below(path))
    throw format_error{"the path '" + path + "' leaves the checkpoint"};
  return path;
}

template <class Fields>
void fields_of(Fields& f, file_entry& x) {
  f("path", checked(x.path, to_path_below))("size", x.size);
  f("checksum",
    text_as([&] { return checksum_text(x.checksum); },
            [&](const document& in) { x.checksum = to_checksum(in); }));
}

template <class Fields>
void fields_of(Fields& f, manifest& x) {
  f.format(manifest_format)("run", x.run_name);
  f.added("run_id", x.run_id).added("name", x.name);
  f("attempt", x.attempt)("index", x.index);
  // All that an earlier version has, and that its readers know.
  f("metrics",
    field_as{[&](std::string& out) { append(out, x.first_values()); },
             [&](const document& in) { x.values = {to_metrics(in)}; }});
  f.added("values", x.values);
  f.added("step_us", list_of(x.step_s, append_us, to_seconds));
  f.added("wait_us", us_of(x.wait_s));
  f("files", x.files);
}

} // namespace json

std::string to_json(const manifest& x) {
  auto out = json::open_object(x);
  append_sum(out);
  return out;
}

expected<manifest> manifest_from_json(const std::string& text,
                                      const fs::path& file) {
  return verify_sum(text, file.string()).and_then([&] {
    return json::read<manifest>(text, file.string(),
                                json::from_fields<manifest>);
  });
}

expected<manifest> read_manifest(const fs::path& folder) {
  return read_from(place_of(folder));
}

expected<manifest> read_manifest(const held_folder& above,
                                 const std::string& name) {
  return read_from(place_of(above, name));
}

expected<void> verify_files(const fs::path& folder, const manifest& x) {
  return verify_all(place_of(folder), x);
}

expected<void> verify_files(const held_folder& above, const std::string& name,
                            const manifest& x) {
  return verify_all(place_of(above, name), x);
}

expected<std::vector<std::string>> unlisted_files(const fs::path& folder,
                                                  const manifest& x) {
  std::set<std::string> known{metadata_file_name};
  for (auto& file : x.files)
    known.insert(file.path);
  std::vector<std::string> result;
  boost::system::error_code code;
  auto i = fs::recursive_directory_iterator{folder, code};
  for (; !code && i != fs::recursive_directory_iterator{}; i.increment(code)) {
    auto path = i->path().lexically_relative(folder).generic_string();
    if (known.contains(path) || is_own_file(path))
      continue;
    TROUPE_TRY(auto found, look_up_link(i->path()));
    if (!found.is_folder())
      result.push_back(std::move(path));
  }
  if (code)
    return tl::unexpected{storage_error("list", folder, code.value())};
  std::ranges::sort(result);
  return result;
}

} // namespace troupe::internal
