#pragma once

#include <sys/types.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "troupe/runtime/text.hpp"

namespace troupe::internal {

/// The functions of a program or library, read from its file: also those that
/// it does not export, unless it was stripped.
///
/// For signal handlers: no allocation, no locks, system calls only.
class symbol_table {
public:
  symbol_table() noexcept = default;

  symbol_table(const symbol_table&) = delete;

  symbol_table& operator=(const symbol_table&) = delete;

  ~symbol_table() { close(); }

  /// Maps the file *path*, whose first byte lies at *base* in memory, in place
  /// of the last one. Returns whether it has symbols.
  bool open(const char* path, const void* base) noexcept;

  struct function {
    std::string_view name;    ///< Mangled; empty: not known.
    std::uint64_t offset = 0; ///< Of the address in the function.
  };

  /// The function that *address* is in. Looks at every symbol.
  function find(const void* address) const noexcept;

private:
  void close() noexcept;
  bool read_sections() noexcept;
  /// The bytes [begin, begin + size) of the file; nullptr if there are not as
  /// many.
  const char* at(std::uint64_t begin, std::uint64_t size) const noexcept;

  char* file_ = nullptr;
  std::size_t size_ = 0;
  const char* symbols_ = nullptr;
  std::size_t symbol_count_ = 0;
  std::string_view names_;
  std::uint64_t base_ = 0; ///< Where address 0 of the file lies in memory.
};

/// The signal that asks for stacks. A thread that blocks it is listed without
/// its stack.
inline int stack_signal() noexcept {
  return SIGRTMIN + 9;
}

/// From now on this process answers `ask_for_stacks` by adding the stacks of
/// all its threads to the file *path*. Call it once; *path* is at most 4 KiB.
///
/// Takes `stack_signal` for itself. A thread in an uninterruptible call is
/// listed without its stack.
void answer_with_stacks(const std::string& path);

/// Asks process *pid* for its stacks; returns at once. Returns whether the
/// process answers such requests: the signal would kill any other.
bool ask_for_stacks(pid_t pid);

} // namespace troupe::internal
