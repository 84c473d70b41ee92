#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/process/spawner_link.hpp"

namespace troupe {

class spawner_client;

/// What a rank process runs. *descriptors* are those of its `spawn_request`,
/// owned by the callee. The process ends with the returned code after stdio is
/// flushed; no static destructor of the program runs.
using rank_main = int (*)(std::string payload, std::vector<int> descriptors);

/// Makes the spawner of this process: a single-threaded child that forks ranks
/// in milliseconds. Call it first in `main`, once.
///
/// While the process has one thread the spawner is a fork of it. Later it is
/// the program started once more with the same arguments, whose own call of
/// this function never returns; whatever `main` does before that call happens
/// there too. The spawner ends with this process, and every rank with the
/// spawner, however this process ends. A second call does nothing.
expected<void> init_spawner(rank_main entry);

/// The client of the spawner that `init_spawner` made, for the rest of the
/// process; `ec::not_initialized` before that, `ec::invalid_argument` inside a
/// rank.
expected<spawner_client*> spawner();

/// How often the spawners of this process could not end what ranks leave
/// behind: one died, or did not answer in time. Counted before the ends of
/// those ranks are reported.
std::uint64_t spawner_losses() noexcept;

/// Forks a spawner; the calling process must have a single thread.
expected<spawner_link> fork_spawner(rank_main entry);

/// Starts this program again as a spawner. From any thread, at any time.
expected<spawner_link> exec_spawner();

/// Becomes the spawner and never returns if this process was started by
/// `exec_spawner`; otherwise returns at once.
void run_spawner_if_asked(rank_main entry);

/// The number of threads of this process.
int thread_count();

} // namespace troupe
