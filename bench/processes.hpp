#pragma once

#include <functional>
#include <string>
#include <vector>

namespace troupe::bench {

/// Keeps the calling thread, and those it starts, on *cores*; empty: as it is.
void pin(const std::vector<int>& cores);

/// Runs *work* in *count* processes forked from this one, each on a core of its
/// own where the runs' ranks have one. Throws if any of them fails.
void run_bare_ranks(int count, const std::function<void(int rank)>& work);

/// Executes this program once more with *arguments* and waits for its end.
/// Throws if it fails.
void run_self(std::vector<std::string> arguments);

} // namespace troupe::bench
