#pragma once

#include <functional>
#include <string>
#include <vector>

namespace troupe::internal::bench {

/// Pins the calling thread, and those it starts, to *cores*; empty: changes
/// nothing.
void pin(const std::vector<int>& cores);

/// Runs *work* in *count* processes forked from this one, each on its own core
/// if the ranks of runs have one. Throws if any of them fails.
void run_bare_ranks(int count, const std::function<void(int rank)>& work);

/// Runs this program again with *arguments* and waits for its end. Throws if it
/// fails.
void run_self(std::vector<std::string> arguments);

} // namespace troupe::internal::bench
