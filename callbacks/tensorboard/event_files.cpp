#include "troupe/callbacks/tensorboard/event_files.hpp"

#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "troupe/callbacks/tensorboard/event_text.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/whole_number.hpp"

namespace troupe::internal::tensorboard {

namespace {

using run_layout::event_prefix;
using run_layout::former_event_prefix;
using run_layout::unfinished_params;

std::int64_t whole_unix_seconds(std::chrono::system_clock::time_point x) {
  return std::chrono::floor<std::chrono::seconds>(x).time_since_epoch().count();
}

// The number after *ending* at the end of *name*.
std::optional<std::uint64_t> number_of(std::string_view name,
                                       std::string_view ending) {
  auto at = name.rfind(ending);
  if (!name.starts_with(event_prefix) || at == name.npos)
    return std::nullopt;
  return whole_number<std::uint64_t>(name.substr(at + ending.size()));
}

// Whether the file *path* has no event: a start that fails, as on a full disk,
// leaves no more than the first record.
bool is_without_events(const fs::path& path) {
  std::string version;
  append_version(version, {});
  auto found = look_up_link(path);
  return found && found->is_file() && found->size <= version.size();
}

// Readers look for "tfevents" in the name.
expected<void> set_aside(const fs::path& path) {
  if (is_without_events(path) && ::unlink(path.c_str()) == 0)
    return {};
  auto rest = path.filename().string().substr(event_prefix.size());
  return rename_to_free(path, [&](int number) {
    return number == 1 ? concat(former_event_prefix, rest)
                       : concat(former_event_prefix, rest, '.', number);
  });
}

} // namespace

expected<event_files> event_files::open(const fs::path& folder, bool is_private,
                                        const std::string& run_id,
                                        const std::string& host,
                                        const event_place& known,
                                        const std::stop_token& over) {
  event_files result{folder, '.' + run_id.substr(0, 8) + '-', host, over};
  TROUPE_TRY_VOID(make_folders(folder));
  TROUPE_TRY_VOID(may_write(over, folder));
  TROUPE_TRY_VOID(result.clean(known, is_private));
  result.number_ = known.number;
  result.seconds_ = known.seconds;
  if (known.number == 0)
    return result;
  TROUPE_TRY(auto file, record_file::open(folder / known.file, over));
  TROUPE_TRY_VOID(file.cut(known.size));
  result.file_ = std::move(file);
  return result;
}

expected<void> event_files::clean(const event_place& known, bool is_private) {
  auto begins = known.number == 0;
  ::unlink((folder_ / unfinished_params).c_str());
  boost::system::error_code code;
  fs::directory_iterator i{folder_, code};
  std::vector<fs::path> later;
  std::vector<fs::path> former;
  for (; !code && i != fs::directory_iterator{}; i.increment(code)) {
    auto file = i->path().filename().string();
    auto number = number_of(file, ending_);
    if (number && *number > known.number)
      (begins ? former : later).push_back(i->path());
    if (!number && begins && is_private && run_layout::is_event_file(file))
      former.push_back(i->path());
    if (number && *number == 0)
      params_file_ = std::move(file);
  }
  for (const auto& path : later)
    if (!code && ::unlink(path.c_str()) != 0)
      return tl::unexpected{storage_error("remove", path, errno)};
  if (code)
    return tl::unexpected{storage_error("read folder", folder_, code.value())};
  for (const auto& path : former)
    TROUPE_TRY_VOID(set_aside(path));
  return {};
}

std::string event_files::name(std::int64_t seconds,
                              std::uint64_t number) const {
  char digits[64];
  std::snprintf(digits, sizeof(digits), "%010lld",
                static_cast<long long>(seconds));
  const std::string head = std::string{event_prefix} + digits;
  std::snprintf(digits, sizeof(digits), "%04llu",
                static_cast<unsigned long long>(number));
  return concat(head, '.', host_, '.', ::getpid(), ending_, digits);
}

expected<void> event_files::begin(std::chrono::system_clock::time_point time) {
  if (file_)
    TROUPE_TRY_VOID(file_->commit());
  // Sorts after the previous file, whatever the clock and the process id are.
  auto seconds = std::max(whole_unix_seconds(time), seconds_ + 1);
  TROUPE_TRY(auto file, record_file::open_new(
                          folder_ / name(seconds, number_ + 1), over_));
  failpoint("tensorboard.begun");
  file_ = std::move(file);
  seconds_ = seconds;
  ++number_;
  return {};
}

expected<void>
event_files::replace_params(std::chrono::system_clock::time_point time,
                            std::string_view records) {
  if (params_file_.empty())
    params_file_ = name(whole_unix_seconds(time), 0);
  auto path = folder_ / params_file_;
  TROUPE_TRY(auto found, look_up(path));
  if (found.exists()) {
    auto before = read_file(path, std::size_t{1} << 26);
    if (before && *before == records)
      return {};
  }
  auto temporary = folder_ / unfinished_params;
  TROUPE_TRY_VOID(may_write(over_, path));
  ::unlink(temporary.c_str());
  auto done = write_new_file(temporary, records).and_then([&] {
    return may_write(over_, path);
  });
  if (done && ::rename(temporary.c_str(), path.c_str()) != 0)
    done = tl::unexpected{storage_error("replace", path, errno)};
  failpoint("tensorboard.params_replaced");
  return done.and_then([&] { return sync_folder(folder_); });
}

event_place event_files::place() const {
  if (!file_)
    return {};
  return {number_, seconds_, file_->path().filename().string(), file_->size()};
}

} // namespace troupe::internal::tensorboard
