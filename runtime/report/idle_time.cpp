#include "troupe/runtime/report/idle_time.hpp"

#include <algorithm>
#include <cstdint>

namespace troupe::internal {

namespace {

using namespace std::chrono_literals;

/// A process that uses less than this part of a core is idle: threads that only
/// wait wake up now and then.
constexpr int idle_part = 1000;

/// And if its main thread wakes up no more often than this in a second. A
/// thread that slowly receives a file over a socket uses hardly any CPU time,
/// but wakes up. Other threads, such as Gloo's, poll their sockets all the
/// time: only the bytes that they transfer count.
constexpr std::uint64_t idle_wake_ups = 2;

} // namespace

void idle_time::look(const std::optional<process_vitals>& seen, time_point now,
                     duration most, bool resets) {
  if (!seen || !last_) {
    idle_ = {};
  } else {
    auto passed =
      std::min(std::chrono::duration_cast<duration>(now - last_look_), most);
    auto worked =
      seen->busy || seen->io_bytes != last_->io_bytes
      || (seen->cpu - last_->cpu) * idle_part > passed
      || seen->wake_ups < last_->wake_ups // a child has ended
      || (seen->wake_ups - last_->wake_ups) * 1s > idle_wake_ups * passed;
    if (seen->stopped || !worked)
      idle_ += passed;
    else if (resets)
      idle_ = {};
  }
  last_ = seen;
  last_look_ = now;
}

} // namespace troupe::internal
