#pragma once

#include <fcntl.h>
#include <sys/resource.h>

#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal::test {

/// While it exists, this process can open *more* descriptors, and no others.
class few_descriptors {
public:
  explicit few_descriptors(rlim_t more = 0) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    // All numbers below it are taken.
    unique_fd next{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
    auto few = before_;
    few.rlim_cur = static_cast<rlim_t>(next.get()) + more;
    ::setrlimit(RLIMIT_NOFILE, &few);
  }

  ~few_descriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

  few_descriptors(const few_descriptors&) = delete;
  few_descriptors& operator=(const few_descriptors&) = delete;

private:
  rlimit before_{};
};

} // namespace troupe::internal::test
