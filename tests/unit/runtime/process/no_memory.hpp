#pragma once

namespace troupe::internal::test {

#ifdef __SANITIZE_ADDRESS__
/// AddressSanitizer has an operator new of its own, in which libraries are at
/// home, too.
inline constexpr bool memory_can_be_scarce = false;
#else
inline constexpr bool memory_can_be_scarce = true;
#endif

/// While there, no thread but the one that made it gets memory.
class no_memory_elsewhere {
public:
  no_memory_elsewhere();
  no_memory_elsewhere(const no_memory_elsewhere&) = delete;
  ~no_memory_elsewhere();

  /// How often a thread was refused some.
  int refused() const;
};

} // namespace troupe::internal::test
