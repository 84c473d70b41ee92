#pragma once

#include <vector>

#include <sys/types.h>

#include "troupe/runtime/process/spawn_wire.hpp"
#include "troupe/runtime/process/spawner.hpp"

namespace troupe {

/// What a process that was just forked needs to become a rank.
struct rank_birth {
  rank_main entry = nullptr;
  pid_t spawner = -1;
  spawn_order order;

  /// stdout, stderr, then those of the request.
  std::vector<unique_fd> descriptors;

  /// The memory file for `keep_last_words_in`.
  unique_fd last_words;
};

/// Turns the calling process, a fork of the spawner that has closed the
/// spawner's descriptors, into a rank and ends it with the result of
/// `birth.entry`.
///
/// The rank dies with the spawner. Its stdin is empty; SIGPIPE and SIGXFSZ are
/// ignored so that a lost peer, or a file that may not grow, is an error of the
/// call that meets it and not the death of the rank. What the other signals do
/// is left to `birth.entry`.
[[noreturn]] void become_rank(rank_birth birth) noexcept;

/// Whether this process has become a rank, or was forked off by one.
bool is_rank() noexcept;

} // namespace troupe
