#include "troupe/trainers/return_value.hpp"

#include <fcntl.h>

#include <optional>
#include <vector>

#include "troupe/runtime/checkpoint/manifest.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/checksum.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/whole_number.hpp"

namespace troupe::internal {

namespace {

/// The folder for all attempts.
expected<held_folder> folder_of(const rank_facts& x) {
  return held_folder::open(x.run_path, x.run_inode)
    .and_then([](const held_folder& run) {
      return run.folder(run_layout::return_values);
    });
}

} // namespace

return_folder::return_folder(const rank_facts& x)
  : folder_(value_or_throw(folder_of(x).and_then([&](const held_folder& all) {
      return all.folder(std::to_string(x.attempt));
    }))),
    rank_(x.rank), attempt_(x.attempt) {
  for (auto& name : value_or_throw(folder_.names()))
    if (name.starts_with(name_of(rank_) + '.'))
      value_or_throw(folder_.remove_file(name));
}

fs::path return_folder::path_of(const fs::path& run, std::uint64_t attempts) {
  auto last = attempts - 1;
  auto folder = held_folder::follow(run / run_layout::return_values);
  auto names = folder ? folder->names() : expected<std::vector<std::string>>{};
  std::optional<std::uint64_t> found;
  if (names)
    for (auto& name : *names)
      if (auto x = whole_number<std::uint64_t>(name);
          x && *x <= last && (!found || *x > *found))
        found = x;
  return run / run_layout::return_values / std::to_string(found.value_or(last));
}

void return_folder::clear(const rank_facts& x) {
  if (x.rank != 0)
    return;
  auto all = value_or_throw(folder_of(x));
  for (auto& name : value_or_throw(all.names()))
    if (auto attempt = whole_number<std::uint64_t>(name);
        attempt && *attempt < x.attempt)
      value_or_throw(all.remove_tree(name));
}

std::string return_folder::name_of(int rank) {
  return concat("rank_", rank);
}

void return_folder::seal(const std::string& file) {
  auto found = value_or_throw(folder_.look_up_link(file));
  if (found.size > max_return_bytes)
    throw train_error{
      {ec::invalid_argument,
       concat("rank ", rank_, " returned a value of ", found.size,
              " bytes, the limit is ", max_return_bytes,
              ": save it in a checkpoint and return its path")}};
  auto path = folder_.path() / file;
  auto opened = value_or_throw(folder_.open_file(file, O_RDONLY, "open"));
  value_or_throw(sync_file(opened, path));
  auto digest = value_or_throw(digest_file(opened, path));
  manifest its{.attempt = attempt_, .files = {}};
  its.files.push_back({file, digest.size, digest.checksum});
  value_or_throw(folder_.write_new_file(
    name_of(rank_) + run_layout::value_manifest, to_json(its)));
  value_or_throw(folder_.sync());
}

void return_folder::check(const fs::path& folder, int rank) {
  auto path = folder / (name_of(rank) + run_layout::value_manifest);
  if (!value_or_throw(look_up(path)).exists())
    return;
  value_or_throw(
    read_file(path, max_manifest_bytes)
      .and_then(
        [&](const std::string& text) { return manifest_from_json(text, path); })
      .and_then([&](const manifest& x) { return verify_files(folder, x); }));
}

} // namespace troupe::internal
