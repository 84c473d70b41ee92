#pragma once

#include <string>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace troupe::bench {

/// Gloo over the loopback device between *ranks* processes of this host, which
/// meet in the file *path*. Nothing of a run is involved.
c10::intrusive_ptr<c10d::ProcessGroup> bare_gloo_group(const std::string& path,
                                                       int rank, int ranks);

/// Two bare processes: a Gloo group, one all-reduce, and the time after it into
/// number *rank* of the file *times*.
void bare_first_collective(const std::string& store, const std::string& times);

/// Sums *x* over the ranks of *group*, in place.
void all_reduce(c10d::ProcessGroup& group, at::Tensor& x);

} // namespace troupe::bench
