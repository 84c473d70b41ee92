#pragma once

#include <pthread.h>

namespace troupe::internal::test {

/// While it exists, every start of a thread fails with EAGAIN: no stack can be
/// that large.
class no_new_threads {
public:
  no_new_threads() {
    ::pthread_attr_init(&before_);
    ::pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    ::pthread_attr_init(&huge);
    ::pthread_attr_setstacksize(&huge, std::size_t{1} << 50);
    ::pthread_setattr_default_np(&huge);
    ::pthread_attr_destroy(&huge);
  }

  no_new_threads(const no_new_threads&) = delete;

  ~no_new_threads() {
    ::pthread_setattr_default_np(&before_);
    ::pthread_attr_destroy(&before_);
  }

private:
  pthread_attr_t before_;
};

} // namespace troupe::internal::test
