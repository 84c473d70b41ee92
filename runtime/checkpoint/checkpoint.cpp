#include "troupe/runtime/checkpoint/checkpoint.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "troupe/runtime/checkpoint/copy_files.hpp"
#include "troupe/runtime/checkpoint/manifest.hpp"
#include "troupe/runtime/process/unique_fd.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/json_reader.hpp"
#include "troupe/runtime/storage/json_writer.hpp"

namespace troupe {

namespace {

constexpr std::size_t max_metadata_bytes = 16 * 1024 * 1024;

/// How long others may hold the metadata: as long as a slow disk, but not as
/// long as a process that is stopped.
constexpr auto metadata_patience = std::chrono::seconds{30};

/// Keeps others from writing the metadata in *folder*, until it is closed. A
/// file system without locks of folders (NFS) gives none: there the last of
/// those who write at once wins.
expected<unique_fd> lock_metadata(const fs::path& folder) {
  unique_fd lock{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (lock.get() < 0)
    return tl::unexpected{storage_error("open folder", folder, errno)};
  auto deadline = std::chrono::steady_clock::now() + metadata_patience;
  while (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR)
      break;
    if (std::chrono::steady_clock::now() >= deadline)
      return failure(ec::timeout, "another process has held the metadata of "
                                    + folder.string() + " for "
                                    + std::to_string(metadata_patience.count())
                                    + " s");
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  return lock;
}

expected<void> write_metadata(const fs::path& folder, const metrics& x) {
  std::string text;
  json::append(text, x);
  text += '\n';
  auto file = folder / metadata_file_name;
  return check_size(file, text, max_metadata_bytes).and_then([&] {
    return replace_shared_file(file, text);
  });
}

} // namespace

expected<fs::path> checkpoint::to_directory(const fs::path& target) const {
  return copy_files(path_, target).map([&] { return target; });
}

expected<void> checkpoint::verify() const {
  return read_manifest(path_).and_then(
    [this](const manifest& x) { return verify_files(path_, x); });
}

expected<metrics> checkpoint::metadata() const {
  auto file = path_ / metadata_file_name;
  auto folder = look_up(path_);
  auto found = look_up(file);
  if (!folder || !found)
    return tl::unexpected{folder ? found.error() : folder.error()};
  if (!folder->is_folder())
    return failure(ec::storage,
                   "there is no checkpoint folder " + path_.string());
  if (!found->exists())
    return metrics{};
  return read_file(file, max_metadata_bytes)
    .and_then([&](const std::string& text) {
      return json::read<metrics>(text, file.string(), json::to_metrics);
    });
}

expected<void> checkpoint::set_metadata(const metrics& x) const {
  return lock_metadata(path_).and_then(
    [&](const unique_fd&) { return write_metadata(path_, x); });
}

expected<void> checkpoint::update_metadata(const metrics& x) const {
  return lock_metadata(path_).and_then([&](const unique_fd&) {
    return metadata().and_then([&](metrics all) {
      for (auto& [name, value] : x)
        all[name] = value;
      return write_metadata(path_, all);
    });
  });
}

} // namespace troupe
