#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace troupe {

/// Receives one sentence about a refused peer or connection.
using refusal_handler = std::function<void(const std::string&)>;

/// Counters of one open socket; shared by its doorman, its connections and its
/// owner.
struct door {
  std::atomic<std::uint64_t> refused_peers{0};
  std::atomic<std::uint64_t> refused_frames{0};
  refusal_handler on_refusal;
};

using door_ptr = std::shared_ptr<door>;

} // namespace troupe
