#include "troupe/runtime/checkpoint/staged_checkpoint.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>

#include "troupe/runtime/checkpoint/copy_files.hpp"
#include "troupe/runtime/checkpoint/manifest.hpp"
#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/checksum.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe {

using namespace internal;

namespace {

constexpr std::size_t max_list_bytes = std::size_t{1} << 30;
constexpr std::size_t max_message_bytes = 512 * 1024;

// Removes a number and the space or line end after it from *text*.
bool take(std::string_view& text, std::uint64_t& number, int base = 10) {
  auto [end, code] =
    std::from_chars(text.data(), text.data() + text.size(), number, base);
  auto size = static_cast<std::size_t>(end - text.data());
  if (code != std::errc{} || size == text.size())
    return false;
  text.remove_prefix(size + 1);
  return true;
}

bool take(std::string_view& text, file_entry& x) {
  std::uint64_t length = 0;
  if (!take(text, x.size) || !take(text, x.checksum, 16) || !take(text, length)
      || length >= text.size())
    return false;
  x.path = text.substr(0, length);
  text.remove_prefix(length + 1);
  return true;
}

/// Folder in `checkpoints/` where a rank of *attempt* writes files that it has
/// not reported yet; no two of one process have the same *serial*.
std::string working_folder(std::uint64_t attempt, int rank,
                           std::uint64_t serial) {
  return concat(run_layout::staging_prefix, attempt, "-rank_", rank, '-',
                serial);
}

} // namespace

std::string internal::staging_folder(std::uint64_t attempt,
                                     std::uint64_t index) {
  return concat(run_layout::staging_prefix, attempt, '-', index);
}

std::string internal::rank_folder(int rank) {
  return concat("rank_", rank);
}

std::string internal::rank_list_file(int rank) {
  return concat(rank_folder(rank), ".list");
}

bool internal::is_long_list(const std::vector<file_entry>& files) {
  std::size_t bytes = 0;
  for (auto& x : files)
    bytes += x.path.size() + 2 * sizeof(std::uint64_t) + 4;
  return bytes > max_message_bytes;
}

// One entry is "<size> <checksum> <length of the path> <path>" and a line end;
// a path may hold any byte. The last line is the checksum of all before it.
expected<void> internal::write_file_list(const held_folder& folder,
                                         const std::string& name,
                                         const std::vector<file_entry>& files) {
  std::string out;
  for (auto& x : files) {
    out +=
      concat(x.size, ' ', checksum_text(x.checksum), ' ', x.path.size(), ' ');
    out += x.path;
    out += '\n';
  }
  out += checksum_text(checksum(out)) + '\n';
  return check_size(folder.path() / name, out, max_list_bytes).and_then([&] {
    return folder.write_new_file(name, out);
  });
}

expected<std::vector<file_entry>>
internal::read_file_list(const held_folder& folder, const std::string& name,
                         std::uint64_t count) {
  TROUPE_TRY(auto bytes, folder.read_file(name, max_list_bytes));
  constexpr std::size_t sum_line = 17;
  auto text = std::string_view{bytes};
  auto body = text.substr(0, text.size() - std::min(text.size(), sum_line));
  auto is_whole =
    text.substr(body.size()) == checksum_text(checksum(body)) + '\n';
  std::vector<file_entry> result;
  while (is_whole && !body.empty())
    is_whole = take(body, result.emplace_back());
  if (!is_whole || result.size() != count)
    return failure(ec::corrupt,
                   concat((folder.path() / name).string(),
                          " is not the list of ", counted(count, "file"),
                          " that its rank wrote"));
  return result;
}

namespace {

// Adds every file below *folder* to *result*, as paths that begin with *above*.
expected<void> list_files(const held_folder& folder, const std::string& above,
                          std::vector<std::string>& result) {
  TROUPE_TRY(auto names, folder.names());
  for (auto& name : names) {
    TROUPE_TRY(auto found, folder.look_up_link(name));
    if (found.is_file()) {
      result.push_back(above + name);
      continue;
    }
    if (!found.is_folder())
      return failure(ec::invalid_argument,
                     (folder.path() / name).string()
                       + " is neither a file nor a folder; a checkpoint holds "
                         "nothing else");
    TROUPE_TRY_VOID(
      folder.existing(name).and_then([&](const held_folder& below) {
        return list_files(below, above + name + '/', result);
      }));
  }
  return {};
}

// Lets the disk write all *paths* in *folder* while their checksums are
// computed, and waits for it. Opens one file at a time: ranks may be threads,
// which share a limit of descriptors.
expected<std::vector<file_entry>>
seal_files(const std::vector<std::string>& paths, const held_folder& folder) {
  for (auto& path : paths) {
    TROUPE_TRY(auto file, folder.open_file(path, O_RDONLY, "open"));
    ::sync_file_range(file.get(), 0, 0, SYNC_FILE_RANGE_WRITE);
  }
  std::vector<file_entry> result;
  for (auto& path : paths) {
    TROUPE_TRY(auto file, folder.open_file(path, O_RDONLY, "open"));
    TROUPE_TRY(auto digest, digest_file(file, folder.path() / path));
    TROUPE_TRY_VOID(sync_file(file, folder.path() / path));
    result.push_back({path, digest.size, digest.checksum});
  }
  return result;
}

} // namespace

staged_checkpoint::staged_checkpoint(staged_checkpoint&& other) noexcept
  : owner_(other.owner_), checkpoints_(std::move(other.checkpoints_)),
    attempt_(other.attempt_), rank_(other.rank_), path_(std::move(other.path_)),
    sources_(std::move(other.sources_)) {
  other.path_.clear();
}

staged_checkpoint&
staged_checkpoint::operator=(staged_checkpoint&& other) noexcept {
  std::swap(owner_, other.owner_);
  std::swap(checkpoints_, other.checkpoints_);
  std::swap(attempt_, other.attempt_);
  std::swap(rank_, other.rank_);
  std::swap(path_, other.path_);
  std::swap(sources_, other.sources_);
  return *this;
}

staged_checkpoint::~staged_checkpoint() {
  if (!path_.empty() && owner_.is_here())
    (void) checkpoints_.remove_tree(path_.filename().string());
}

expected<void> staged_checkpoint::add_directory(const fs::path& source,
                                                bool move) {
  return folder().and_then([&](const held_folder& to) {
    if (!move)
      return copy_files(source, to);
    return link_files(source, to).map([&](std::vector<fs::path> files) {
      sources_.insert(sources_.end(), files.begin(), files.end());
    });
  });
}

// Renames the folder to where the commit looks for this rank's files.
expected<held_folder>
staged_checkpoint::hand_over(const std::string& folder_name) {
  TROUPE_TRY(auto above, checkpoints_.make_folder(folder_name));
  // Left by a failed start of the same attempt.
  auto to = rank_folder(rank_);
  TROUPE_TRY_VOID(above.remove_file(rank_list_file(rank_)));
  TROUPE_TRY_VOID(above.remove_tree(to));
  TROUPE_TRY_VOID(
    checkpoints_.rename_new(path_.filename().string(), above, to));
  path_.clear();
  return above;
}

namespace internal {

expected<staged_checkpoint> staging::create(const fs::path& run_path,
                                            std::uint64_t attempt, int rank,
                                            std::uint64_t run_inode) {
  static std::atomic<std::uint64_t> serial = 0;
  // If the run's folder is gone, it is not created: nothing would keep the
  // files.
  TROUPE_TRY(auto run, held_folder::open(run_path, run_inode));
  TROUPE_TRY(auto checkpoints, run.existing(run_layout::checkpoints));
  for (;;) {
    auto name = working_folder(attempt, rank, serial++);
    auto path = checkpoints.path() / name;
    if (::mkdirat(checkpoints.descriptor().get(), name.c_str(), 0700) == 0)
      return staged_checkpoint{std::move(checkpoints), attempt, rank,
                               std::move(path)};
    if (errno != EEXIST) // Leftovers of a start of the same attempt stay.
      return tl::unexpected{storage_error("make folder", path, errno)};
  }
}

expected<checkpoint_part> staging::seal(staged_checkpoint& x,
                                        std::uint64_t index, std::string name) {
  if (x.path_.empty())
    return failure(ec::invalid_argument,
                   "this checkpoint was reported already, or moved to another "
                   "object: take a new one (new_checkpoint) for each report");
  if (!x.owner_.is_here())
    return failure(ec::invalid_argument,
                   "the checkpoint in " + x.path_.string()
                     + " belongs to the process that forked this one");
  TROUPE_TRY(auto there, x.checkpoints_.is_at_its_path());
  if (!there)
    return tl::unexpected{gone_error(
      "the run's folder", x.checkpoints_.path(),
      "removed, renamed or replaced while a checkpoint was written")};
  TROUPE_TRY(auto files, x.folder());
  std::vector<std::string> paths;
  TROUPE_TRY_VOID(list_files(files, "", paths));
  std::ranges::sort(paths);
  if (paths.empty())
    return failure(ec::invalid_argument,
                   "the checkpoint in " + x.path_.string() + " has no files");
  if (std::ranges::binary_search(paths, manifest_file_name))
    return failure(ec::invalid_argument,
                   (x.path_ / manifest_file_name).string()
                     + " has the name of the run's own manifest");
  checkpoint_part result{std::move(name), {}, 0};
  TROUPE_TRY(result.files, seal_files(paths, files));
  TROUPE_TRY(auto above, x.hand_over(staging_folder(x.attempt_, index)));
  if (!is_long_list(result.files))
    return result;
  result.listed = result.files.size();
  return write_file_list(above, rank_list_file(x.rank_),
                         std::exchange(result.files, {}))
    .map([&] { return std::move(result); });
}

bool staging::has_sources(const staged_checkpoint& x) noexcept {
  return !x.sources_.empty();
}

void staging::remove_sources(staged_checkpoint& x) noexcept {
  boost::system::error_code code;
  for (auto& path : x.sources_)
    fs::remove(path, code);
  x.sources_.clear();
}

} // namespace internal

} // namespace troupe
