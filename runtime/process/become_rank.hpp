#pragma once

#include <sys/types.h>

#include <vector>

#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/spawn_wire.hpp"
#include "troupe/runtime/process/spawner.hpp"

namespace troupe::internal {

/// Turns the calling process, a fork of *spawner* that has closed the spawner's
/// descriptors, into a rank, and ends it with the result of *entry*.
///
/// *descriptors* are those of *order*; *termination_message* is the memory file
/// for `keep_termination_message_in`. The rank dies with the spawner. Its stdin
/// is empty; SIGPIPE and SIGXFSZ are ignored so that a lost peer, or a file
/// that may not grow, is an error of the call that meets it and not the death
/// of the rank. What the other signals do is left to *entry*.
[[noreturn]] void become_rank(rank_main entry, pid_t spawner, spawn_order order,
                              std::vector<unique_fd> descriptors,
                              unique_fd termination_message) noexcept;

/// Whether this process has become a rank, or was forked off by one.
bool is_rank() noexcept;

} // namespace troupe::internal
