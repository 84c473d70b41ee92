#pragma once

#include <string>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "troupe/trainers/torch/groups/c10d_groups.hpp"

namespace troupe::internal::bench {

/// Gloo between *ranks* processes which meet through the file *path*, without a
/// run; the others reach this one at *address*.
c10::intrusive_ptr<c10d::ProcessGroup>
bare_gloo_group(const std::string& path, int rank, int ranks,
                const std::string& address = loopback_address);

/// One of two bare processes: joins a Gloo group, does one all-reduce, and
/// stores the time after it in number *rank* of the file *times*.
void bare_first_collective(const std::string& store, const std::string& times);

/// Sums *x* over the ranks of *group*, in place.
void all_reduce(c10d::ProcessGroup& group, at::Tensor& x);

} // namespace troupe::internal::bench
