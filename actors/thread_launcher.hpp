#pragma once

#include <functional>
#include <memory>

#include "troupe/actors/rank_launcher.hpp"

namespace troupe {

/// Starts ranks as threads of this process. A thread that does not leave its
/// loop cannot be ended: it is left behind.
class thread_launcher : public rank_launcher {
public:
  /// What a rank's thread does; must not throw. *segment* stays open as long as
  /// it runs, whatever becomes of its attempt.
  using body_type =
    std::function<void(std::uint64_t attempt, int rank, int segment)>;

  explicit thread_launcher(body_type body);

  void launch(std::uint64_t attempt, int rank, int segment,
              const events& listener) override;
  void kill(int rank) override;

  /// Threads that are still in their loops.
  int running() const noexcept;

  /// Waits until no thread is in its loop any more.
  void join();

private:
  struct shared;
  std::shared_ptr<shared> shared_;
};

} // namespace troupe
