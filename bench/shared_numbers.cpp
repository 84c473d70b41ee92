#include "shared_numbers.hpp"

#include <algorithm>
#include <stdexcept>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace troupe::internal::bench {

shared_numbers::shared_numbers(const std::string& path, std::size_t count) {
  auto bytes = count * sizeof(double);
  auto file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  auto memory = MAP_FAILED;
  if (file >= 0 && ::ftruncate(file, static_cast<off_t>(bytes)) == 0)
    memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (memory == MAP_FAILED)
    throw std::runtime_error{"cannot share numbers in " + path};
  numbers_ = {static_cast<double*>(memory), count};
}

shared_numbers::~shared_numbers() {
  ::munmap(numbers_.data(), numbers_.size_bytes());
}

std::vector<double> shared_numbers::part(std::size_t begin,
                                         std::size_t count) const {
  auto some = numbers_.subspan(begin, count);
  return {some.begin(), some.end()};
}

double shared_numbers::max() const {
  return *std::max_element(numbers_.begin(), numbers_.end());
}

} // namespace troupe::internal::bench
