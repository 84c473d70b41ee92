#pragma once

#include <chrono>

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace troupe {

/// Destroys groups on threads of their own. The destructor of a Gloo group
/// waits for threads that may sit in a collective until their peers close their
/// connections or a timeout strikes; no one else shall wait for that.
class group_reaper {
public:
  /// Groups that may be on their way out at a time. More means that attempts
  /// are given up faster than the network notices.
  static constexpr int limit = 16;

  /// Takes *group* away. The caller holds no other reference. If the system has
  /// no thread left, the group stays behind, with its memory and connections.
  static void dispose(c10::intrusive_ptr<c10d::Backend> group);

  /// How many groups are still on their way out.
  static int pending();

  /// Waits until none is, at most *limit*; whether that is so.
  static bool drain(std::chrono::milliseconds limit);
};

} // namespace troupe
