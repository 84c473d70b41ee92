#pragma once

#include <chrono>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace troupe {

/// Whether this build has Gloo.
bool has_gloo() noexcept;

/// Gloo between *size* ranks that meet at *store*; over the loopback device if
/// they are all on *one_host*. Throws `train_error`: `ec::unsupported` in a
/// build without Gloo, and what the store says.
c10::intrusive_ptr<c10d::Backend>
make_gloo_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                int size, bool one_host, std::chrono::milliseconds timeout);

} // namespace troupe
