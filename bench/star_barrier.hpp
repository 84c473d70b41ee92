#pragma once

#include <string>
#include <thread>

#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal::bench {

/// The baseline that a report is compared with: every rank writes 64 bytes to a
/// Unix socket and waits for 64 bytes back, which arrive once all ranks have
/// written. Blocking calls only.
class star_hub {
public:
  /// Serves *ranks* ranks on a thread until they close their sockets.
  star_hub(std::string name, int ranks);
  ~star_hub();

  star_hub(const star_hub&) = delete;
  star_hub& operator=(const star_hub&) = delete;

private:
  void serve(int ranks);

  unique_fd listener_;
  std::thread thread_;
};

/// One rank's end of the barrier.
class star_rank {
public:
  explicit star_rank(const std::string& name);

  void barrier();

private:
  unique_fd hub_;
};

} // namespace troupe::internal::bench
