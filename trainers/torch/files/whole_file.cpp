#include "troupe/trainers/torch/files/whole_file.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

namespace troupe::internal {

expected<std::shared_ptr<mapped_file>> mapped_file::open(const fs::path& path) {
  auto refuse = [&](const char* why) {
    return failure(ec::storage, path.string() + " cannot be read: " + why);
  };
  // Does not wait for a writer if the path is a pipe.
  unique_fd file{::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
  struct stat facts {};
  if (!file || ::fstat(file.get(), &facts) == -1)
    return refuse(std::strerror(errno));
  if (!S_ISREG(facts.st_mode))
    return refuse("it is not a file");
  auto size = static_cast<std::size_t>(facts.st_size);
  void* memory = nullptr;
  if (size > 0) {
    // Without a reservation: the file may be larger than memory, and hardly
    // any of its pages are written to.
    memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_NORESERVE, file.get(), 0);
    if (memory == MAP_FAILED)
      return refuse(std::strerror(errno));
  }
  return std::shared_ptr<mapped_file>{
    new mapped_file{{static_cast<std::byte*>(memory), size}}};
}

mapped_file::~mapped_file() {
  if (!bytes_.empty())
    ::munmap(bytes_.data(), bytes_.size());
}

expected<replacing_file> replacing_file::create(const fs::path& path) {
  replacing_file result{path, make_temporary(AT_FDCWD, path, 0666)};
  if (!result.temporary_.file)
    return result.failed(result.temporary_.code);
  return result;
}

replacing_file::~replacing_file() {
  if (temporary_.file)
    ::unlink(temporary_.path.c_str());
}

expected<void>
replacing_file::write(const std::vector<std::span<const std::byte>>& pieces) {
  std::vector<iovec> rest;
  for (const auto& piece : pieces)
    if (!piece.empty())
      rest.push_back({const_cast<std::byte*>(piece.data()), piece.size()});
  std::size_t first = 0;
  while (first < rest.size()) {
    auto count = std::min<std::size_t>(rest.size() - first, IOV_MAX);
    auto written =
      ::writev(temporary_.file.get(), &rest[first], static_cast<int>(count));
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
  if (::rename(temporary_.path.c_str(), path_.c_str()) == -1)
    return failed(errno);
  if (::close(temporary_.file.release()) == -1)
    return failed(errno);
  return {};
}

tl::unexpected<error> replacing_file::failed(int code) const {
  return failure(ec::storage,
                 path_.string() + " cannot be written: " + std::strerror(code));
}

} // namespace troupe::internal
