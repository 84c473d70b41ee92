#pragma once

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
