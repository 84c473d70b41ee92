#include "troupe/trainers/torch/files/whole_file.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

namespace troupe::internal {

expected<std::shared_ptr<mapped_file>> mapped_file::open(const fs::path& path) {
  auto refuse = [&](int code) {
    return failure(ec::storage,
                   path.string() + " cannot be read: "
                     + (code == 0 ? "it is not a file" : std::strerror(code)));
  };
  // Does not wait for a writer if the path is a pipe.
  const auto file = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (file == -1)
    return refuse(errno);
  struct stat facts {};
  void* memory = nullptr;
  int code = 0;
  auto is_file = true;
  if (::fstat(file, &facts) == -1) {
    code = errno;
  } else if (!S_ISREG(facts.st_mode)) {
    is_file = false;
  } else if (facts.st_size > 0) {
    // Without a reservation: the file may be larger than memory, and hardly
    // any of its pages are written to.
    memory =
      ::mmap(nullptr, static_cast<std::size_t>(facts.st_size),
             PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file, 0);
    if (memory == MAP_FAILED)
      code = errno;
  }
  ::close(file);
  if (code != 0 || !is_file)
    return refuse(code);
  return std::shared_ptr<mapped_file>{
    new mapped_file{{static_cast<std::byte*>(memory),
                     static_cast<std::size_t>(facts.st_size)}}};
}

mapped_file::~mapped_file() {
  if (!bytes_.empty())
    ::munmap(bytes_.data(), bytes_.size());
}

expected<replacing_file> replacing_file::create(const fs::path& path) {
  // Another writer of the same path uses a different name. The system applies
  // the process's mask to the mode.
  std::random_device random;
  for (;;) {
    char suffix[16];
    std::snprintf(suffix, sizeof(suffix), "-%08x", random());
    auto name = path.parent_path() / ("." + path.filename().string() + suffix);
    const auto file =
      ::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file != -1)
      return replacing_file{path, std::move(name), file};
    if (errno != EEXIST)
      return failure(ec::storage, path.string() + " cannot be written: "
                                    + std::strerror(errno));
  }
}

replacing_file::replacing_file(fs::path path, fs::path temporary, int file)
  : path_(std::move(path)), temporary_(std::move(temporary)), file_(file) {}

replacing_file::replacing_file(replacing_file&& other) noexcept
  : path_(std::move(other.path_)), temporary_(std::move(other.temporary_)),
    file_(std::exchange(other.file_, -1)) {}

replacing_file::~replacing_file() {
  if (file_ != -1) {
    ::close(file_);
    ::unlink(temporary_.c_str());
  }
}

expected<void>
replacing_file::write(const std::vector<std::span<const std::byte>>& pieces) {
  std::vector<iovec> rest;
  for (const auto& piece : pieces)
    if (!piece.empty())
      rest.push_back({const_cast<std::byte*>(piece.data()), piece.size()});
  std::size_t first = 0;
  while (first < rest.size()) {
    const auto count = std::min<std::size_t>(rest.size() - first, IOV_MAX);
    auto written = ::writev(file_, &rest[first], static_cast<int>(count));
    if (written == -1 && errno == EINTR)
      continue;
    if (written <= 0)
      return failed(written == 0 ? ENOSPC : errno);
    // A write may end within a piece: 2 GiB is the limit of one call.
    while (first < rest.size()
           && static_cast<std::size_t>(written) >= rest[first].iov_len)
      written -= static_cast<ssize_t>(rest[first++].iov_len);
    if (written > 0) {
      auto& piece = rest[first];
      piece.iov_base = static_cast<char*>(piece.iov_base) + written;
      piece.iov_len -= static_cast<std::size_t>(written);
    }
  }
  return {};
}

expected<void> replacing_file::commit() {
  if (::rename(temporary_.c_str(), path_.c_str()) == -1)
    return failed(errno);
  if (::close(std::exchange(file_, -1)) == -1)
    return failed(errno);
  return {};
}

tl::unexpected<error> replacing_file::failed(int code) const {
  return failure(ec::storage,
                 path_.string() + " cannot be written: " + std::strerror(code));
}

} // namespace troupe::internal
