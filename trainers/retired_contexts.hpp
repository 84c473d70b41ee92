#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "troupe/trainers/train_context.hpp"

namespace troupe::internal {

/// Contexts whose loops have ended. A thread that a loop left running may still
/// call one, and gets an exception instead of a crash.
class retired_contexts {
public:
  void add(std::unique_ptr<train_context> x) {
    std::lock_guard guard{mutex_};
    contexts_.push_back(std::move(x));
  }

private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<train_context>> contexts_;
};

} // namespace troupe::internal
