#pragma once

namespace troupe::test {

/// While there, no thread but the one that made it gets memory.
class no_memory_elsewhere {
public:
  no_memory_elsewhere();
  no_memory_elsewhere(const no_memory_elsewhere&) = delete;
  ~no_memory_elsewhere();

  /// How often a thread was refused some.
  int refused() const;
};

} // namespace troupe::test
