#include "troupe/trainers/torch/files/mapped_file.hpp"

#include <cerrno>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace troupe {

expected<std::shared_ptr<mapped_file>> mapped_file::open(const fs::path& path) {
  auto refuse = [&](int code) {
    return failure(ec::storage,
                   path.string() + " cannot be read: "
                     + (code == 0 ? "it is not a file" : std::strerror(code)));
  };
  // A pipe in a file's place must not have us wait for who writes to it.
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

} // namespace troupe
