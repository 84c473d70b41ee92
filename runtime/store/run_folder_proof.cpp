// Which folders are those of runs.

#include <fcntl.h>

#include <algorithm>

#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/checksum.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/store/journal_reader.hpp"
#include "troupe/runtime/store/run_folder.hpp"
#include "troupe/runtime/whole_number.hpp"

namespace troupe::internal {

namespace {

constexpr auto proofs = {run_layout::description, run_layout::journal,
                         run_layout::state};

// The first line of a journal, which grows; else all of the file.
expected<std::string> signed_part(const held_folder& folder,
                                  const std::string& name) {
  if (name != run_layout::journal)
    return folder.read_file(name, max_state_bytes);
  TROUPE_TRY(auto file, folder.open_file(name, O_RDONLY, "open"));
  line_reader lines{std::move(file), folder.path() / name, 0};
  TROUPE_TRY(auto line, lines.next());
  return std::string{line.value_or("")};
}

// Whether one of the files that prove a run has a checksum of Troupe's. An
// error if none has, and one cannot be read.
expected<bool> has_proof(const held_folder& folder) {
  error unread;
  for (std::string name : proofs) {
    TROUPE_TRY(auto there, folder.look_up_link(name));
    if (!there.exists())
      continue;
    auto text = signed_part(folder, name);
    if (text && verify_sum(*text, name))
      return true;
    if (!text)
      unread = text.error();
  }
  if (unread)
    return tl::unexpected{unread};
  return false;
}

// Whether a driver is known to have had the folder: the number of its attempt
// stays.
bool was_claimed(const held_folder& folder) {
  auto attempts = folder.existing(run_layout::attempts);
  auto names = attempts.and_then(&held_folder::names);
  return names && std::ranges::any_of(*names, is_digits);
}

// What a start makes before it claims the run: it may have been killed there,
// or be under way. Hidden files are those of disks and desktops.
bool precedes_claim(const std::string& name) {
  using namespace run_layout;
  return name.starts_with('.') || name == lock || name == attempts
         || name == checkpoints || name == logs || name == sinks;
}

} // namespace

expected<void> expect_run_folder(const fs::path& path) {
  TROUPE_TRY(auto folder, look_up(path));
  if (!folder.exists())
    return failure(ec::storage, "there is no folder " + path.string());
  if (!folder.is_folder())
    return failure(ec::invalid_argument, path.string() + " is not a folder");
  for (auto name : proofs) {
    TROUPE_TRY(auto found, look_up(path / name));
    if (found.exists())
      return {};
  }
  return failure(ec::invalid_argument,
                 path.string()
                   + " is not the folder of a run: it has no run.json, no "
                     "state.json and no journal.jsonl");
}

expected<void> expect_own_run(const fs::path& path) {
  TROUPE_TRY(auto folder, held_folder::follow(path));
  TROUPE_TRY(auto proven, has_proof(folder));
  if (proven)
    return {};
  return failure(ec::invalid_argument,
                 path.string()
                   + " may be another program's: no checksum of Troupe's is in "
                     "its run.json, state.json or journal.jsonl");
}

bool is_replaced_run(std::string_view folder) noexcept {
  auto dash = folder.rfind('-');
  return folder.starts_with(replaced_prefix) && dash >= replaced_prefix.size()
         && folder.size() - dash == 9 && is_hex(folder.substr(dash + 1));
}

expected<void> refuse_foreign(const held_folder& folder) {
  TROUPE_TRY(auto names, folder.names());
  if (std::ranges::count(names, run_layout::sweep_description) > 0)
    return failure(ec::conflict, folder.path().string()
                                   + " is the folder of a sweep: choose "
                                     "another run.name");
  auto other = std::ranges::find_if_not(names, precedes_claim);
  if (other == names.end())
    return {};
  if (was_claimed(folder))
    return {};
  TROUPE_TRY(auto proven, has_proof(folder));
  if (proven)
    return {};
  return failure(ec::conflict,
                 folder.path().string() + " holds " + *other
                   + ", but no run: choose another run.name or storage_path");
}

} // namespace troupe::internal
