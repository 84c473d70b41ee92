#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "troupe/actors/door/door.hpp"
#include "troupe/actors/door/tls_channel.hpp"

namespace troupe::internal::bench {

/// The baseline that a report of several hosts is compared with: as a
/// `star_hub`, over the connections of the door.
class tls_star_hub {
public:
  /// Serves *ranks* ranks on a thread until they close their connections.
  /// Writes what they need to the file *ticket*.
  tls_star_hub(const std::string& ticket, int ranks);
  ~tls_star_hub();

  tls_star_hub(const tls_star_hub&) = delete;
  tls_star_hub& operator=(const tls_star_hub&) = delete;

private:
  void serve(std::size_t ranks);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<tls_channel>> clients_;
  bool ends_ = false;
  owned_ptr<door> door_;
  std::thread thread_;
};

/// One rank's end of the barrier.
class tls_star_rank {
public:
  explicit tls_star_rank(const std::string& ticket);

  void barrier();

private:
  std::unique_ptr<tls_channel> hub_;
};

} // namespace troupe::internal::bench
