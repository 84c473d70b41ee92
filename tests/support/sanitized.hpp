#pragma once

#include <gtest/gtest.h>

namespace troupe::internal::test {

/// Whether a sanitizer watches each access to memory, which takes 5 to 15 times
/// as long. Tests of large amounts and of random inputs use fewer here: the
/// same lines run, and the build without sanitizers tests the amount.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

} // namespace troupe::internal::test

/// Skips a test whose children run on after a fork of several threads, which
/// ThreadSanitizer does not support.
#ifdef __SANITIZE_THREAD__
#define TROUPE_SKIP_FORKS_UNDER_TSAN()                                         \
  GTEST_SKIP() << "ThreadSanitizer does not work in what a process with "      \
                  "several threads forked"
#else
#define TROUPE_SKIP_FORKS_UNDER_TSAN() static_cast<void>(0)
#endif
