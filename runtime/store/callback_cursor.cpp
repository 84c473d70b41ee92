#include "troupe/runtime/store/callback_cursor.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <string>
#include <utility>

#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/whole_number.hpp"

namespace troupe::internal {

namespace {

/// The file is one line of this many bytes, padded with zeros, so that a new
/// count overwrites the old one.
constexpr std::size_t line_size = 21;

/// More reports than any run has.
constexpr auto all = std::numeric_limits<std::uint64_t>::max();

std::string count_line(std::uint64_t count) {
  auto digits = std::to_string(count);
  std::string line(line_size - 1 - digits.size(), '0');
  return line + digits + '\n';
}

// Set aside, if it was rotten, or removed by a user. One that cannot be looked
// up is not gone.
bool is_gone(const fs::path& checkpoint) {
  auto found = look_up(checkpoint);
  return found && !found->exists();
}

} // namespace

expected<callback_cursor> callback_cursor::open_file_of(run_store& store) {
  auto& files = store.folder().files();
  return files.open_file(run_layout::callback_cursor, O_RDWR | O_CREAT, "open")
    .map([&](unique_fd file) {
      return callback_cursor{store, files.path() / run_layout::callback_cursor,
                             std::move(file)};
    });
}

expected<callback_cursor> callback_cursor::open(run_store& store) {
  TROUPE_TRY(auto result, open_file_of(store));
  TROUPE_TRY(auto count, result.count());
  result.stored_ = store.next_report();
  store.hold_checkpoints(std::min(count, result.stored_));
  if (count < result.stored_) {
    TROUPE_TRY(auto kept, store.hold_checkpoints_again(count));
    for (auto& x : kept)
      result.kept_.emplace(x.index, std::move(x.data));
    TROUPE_TRY(auto reader,
               batch_reader::open(store.folder().journal_file(), count));
    // Finding the first one may take long.
    TROUPE_TRY(auto first, reader.next());
    result.pending_ = std::move(reader);
    result.first_ = std::move(first);
    result.next_ = count;
  }
  TROUPE_TRY_VOID(count > result.stored_ ? result.lower(result.stored_)
                                         : result.set_count(count));
  return result;
}

expected<void> callback_cursor::mark_all_delivered(run_store& store) {
  return open_file_of(store).and_then(
    [](callback_cursor x) { return x.set_count(all); });
}

expected<std::optional<pending_report>> callback_cursor::next_pending() {
  if (!pending_)
    return std::optional<pending_report>{};
  auto row = first_ ? expected<std::optional<journaled_batch>>{std::exchange(
               first_, std::nullopt)}
                    : pending_->next();
  if (row && *row && (*row)->index < stored_) {
    pending_report result{std::move(**row), {}};
    next_ = result.batch.index + 1;
    // The name could belong to a later report by now.
    auto data = kept_.find(result.batch.index);
    if (data != kept_.end() && data->second.name() == result.batch.checkpoint
        && !is_gone(data->second.path()))
      result.data = data->second;
    return result;
  }
  pending_.reset();
  if (row)
    return std::optional<pending_report>{};
  skipped_.emplace("all callbacks", next_); // The count has to stand still.
  return tl::unexpected{row.error()};
}

expected<void>
callback_cursor::mark_delivered(std::uint64_t index,
                                const std::vector<std::string>& skipped) {
  for (auto& who : skipped)
    skipped_.emplace(who, index);
  // The count comes first: what it does not cover is replayed, with its
  // checkpoint.
  TROUPE_TRY_VOID(store_->folder().check());
  if (skipped_.empty())
    TROUPE_TRY_VOID(set_count(index + 1));
  store_->hold_checkpoints(index + 1);
  return {};
}

std::vector<std::string> callback_cursor::skipped() const {
  std::vector<std::string> result;
  for (auto& [who, index] : skipped_)
    result.push_back(
      concat("not called for report ", index, " and later ones: ", who));
  return result;
}

expected<std::uint64_t> callback_cursor::count() const {
  std::array<char, line_size + 1> bytes;
  auto size = ::pread(file_.get(), bytes.data(), bytes.size(), 0);
  if (size < 0)
    return tl::unexpected{storage_error("read", path_, errno)};
  // New, or a power cut has taken its bytes, and perhaps left its size.
  std::string_view text{bytes.data(), static_cast<std::size_t>(size)};
  if (text.find_first_not_of('\0') == text.npos)
    return 0;
  auto result = whole_number<std::uint64_t>({bytes.data(), line_size - 1});
  if (size != line_size || !result || bytes[line_size - 1] != '\n')
    return failure(ec::corrupt, path_.string()
                                  + " is damaged: remove it to replay all "
                                    "reports of the run to callbacks");
  return *result;
}

expected<void> callback_cursor::lower(std::uint64_t count) {
  auto& files = store_->folder().files();
  TROUPE_TRY_VOID(
    files.replace_file(run_layout::callback_cursor, count_line(count)));
  TROUPE_TRY(file_,
             files.open_file(run_layout::callback_cursor, O_RDWR, "open"));
  return {};
}

expected<void> callback_cursor::set_count(std::uint64_t count) {
  TROUPE_TRY_VOID(overwrite(file_, path_, count_line(count)));
  failpoint("told.written");
  return {};
}

expected<std::optional<callback_cursor>>
open_callback_cursor(run_store& store, bool has_callbacks) {
  if (!has_callbacks)
    return callback_cursor::mark_all_delivered(store).map(
      [] { return std::optional<callback_cursor>{}; });
  return callback_cursor::open(store).map(
    [](callback_cursor x) { return std::optional{std::move(x)}; });
}

} // namespace troupe::internal
