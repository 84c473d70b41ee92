#pragma once

#include <string>

#include "troupe/runtime/config/run_config.hpp"
#include "workplace.hpp"

namespace troupe::internal::bench {

/// A run of two ranks that sum one tensor over the default backend and store
/// the time after it in number *rank* of the file *times*. Throws if it fails.
void troupe_first_collective(run_config run, const std::string& times);

/// Seconds from *start*, a time of `now`, until the later of the two times in
/// the file *times*.
double seconds_to_first_collective(double start, const std::string& times);

/// Seconds that two processes without Troupe, forked by this one, take to their
/// first collective.
double seconds_of_bare_start(workplace& place);

// What this program does when `start_cold` runs it.

/// Before `init`: the two bare processes.
int bare_start_child(const std::string& store, const std::string& times);

/// After `init`: the run, with its files in *storage*.
int start_cold_child(const std::string& storage, const std::string& times);

} // namespace troupe::internal::bench
