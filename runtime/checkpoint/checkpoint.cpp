#include "troupe/runtime/checkpoint/checkpoint.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "troupe/runtime/checkpoint/copy_files.hpp"
#include "troupe/runtime/checkpoint/manifest.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/json.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe {

using namespace internal;

namespace {

constexpr std::size_t max_metadata_bytes = 16 * 1024 * 1024;

/// How long others may hold the metadata: longer than a slow disk needs, but
/// not as long as a stopped process.
constexpr auto metadata_patience = std::chrono::seconds{30};

/// Keeps others from writing the metadata in *folder* until it is closed. A
/// file system without locks on folders (NFS) gives none: there the last of
/// several writers wins.
expected<unique_fd> lock_metadata(const fs::path& folder) {
  unique_fd lock{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (lock.get() < 0)
    return tl::unexpected{storage_error("open folder", folder, errno)};
  auto deadline = std::chrono::steady_clock::now() + metadata_patience;
  while (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR)
      break;
    if (std::chrono::steady_clock::now() >= deadline)
      return failure(ec::timeout,
                     concat("another process has held the metadata of ",
                            folder.string(), " for ",
                            duration_text(metadata_patience)));
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  return lock;
}

expected<void> write_metadata(const unique_fd& folder, const fs::path& path,
                              const metrics& x) {
  std::string text;
  json::append(text, x);
  text += '\n';
  auto file = path / metadata_file_name;
  return check_size(file, text, max_metadata_bytes).and_then([&] {
    return replace_shared_file(folder, file, text);
  });
}

/// The metadata in the open *folder*; none if there is no file of it.
expected<metrics> read_metadata(const unique_fd& folder, const fs::path& path) {
  auto file = path / metadata_file_name;
  TROUPE_TRY(auto found, look_up_at(folder.get(), metadata_file_name, file, 0));
  if (!found.exists())
    return metrics{};
  return open_to_read_at(folder.get(), metadata_file_name, file, O_RDONLY,
                         "open")
    .and_then([&](const unique_fd& opened) {
      return read_open_file(opened, file, max_metadata_bytes);
    })
    .and_then([&](const std::string& text) {
      return json::read<metrics>(text, file.string(), json::to_metrics);
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
  TROUPE_TRY(auto found, look_up(path_));
  if (!found.is_folder())
    return failure(ec::storage,
                   "there is no checkpoint folder " + path_.string());
  return open_file(path_, O_RDONLY | O_DIRECTORY, "open folder")
    .and_then(
      [&](const unique_fd& folder) { return read_metadata(folder, path_); });
}

expected<void> checkpoint::set_metadata(const metrics& x) const {
  return lock_metadata(path_).and_then(
    [&](const unique_fd& folder) { return write_metadata(folder, path_, x); });
}

expected<void> checkpoint::update_metadata(const metrics& x) const {
  return lock_metadata(path_).and_then([&](const unique_fd& folder) {
    return read_metadata(folder, path_).and_then([&](metrics all) {
      for (auto& [name, value] : x)
        all[name] = value;
      return write_metadata(folder, path_, all);
    });
  });
}

} // namespace troupe
