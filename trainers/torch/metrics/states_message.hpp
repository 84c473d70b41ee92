#pragma once

#include <cstdint>
#include <vector>

#include "troupe/trainers/torch/metrics/metric_state.hpp"

namespace troupe {

/// States as bytes, for the way to the other ranks: first words that tell the
/// number of updates, types and shapes, then the elements of every state.
struct states_message {
  at::Tensor bytes;       ///< uint8, a multiple of eight.
  std::int64_t words = 0; ///< 64-bit words before the elements.
};

/// *xs* as bytes on *device*.
states_message pack(const std::vector<const metric_states*>& xs,
                    at::Device device);

/// What `pack` made of states like *like*, back from *x*: states on the devices
/// of *like*. The tensors are views of *x* where they can be.
std::vector<metric_states>
unpack(const states_message& x, const std::vector<const metric_states*>& like);

} // namespace troupe
