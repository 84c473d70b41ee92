#pragma once

#include <deque>
#include <utility>
#include <vector>

namespace troupe::internal {

/// The batches of a run on their way into storage: one is stored at a time, in
/// the order in which they came.
template <class Batch>
class batch_queue {
public:
  void add(Batch x) { batches_.push_back(std::move(x)); }

  /// The oldest batch, which is being stored from now until `pop`; null while
  /// another one is, and if there is none.
  Batch* store_next() {
    if (storing_ || batches_.empty())
      return nullptr;
    storing_ = true;
    return &batches_.front();
  }

  bool is_storing() const noexcept { return storing_; }

  /// Takes out the batch that was being stored.
  Batch pop() {
    auto result = std::move(batches_.front());
    batches_.pop_front();
    storing_ = false;
    return result;
  }

  /// Takes out all but the batch that is being stored.
  std::vector<Batch> take_waiting() {
    std::vector<Batch> result;
    auto first = batches_.begin() + (storing_ ? 1 : 0);
    for (auto i = first; i != batches_.end(); ++i)
      result.push_back(std::move(*i));
    batches_.erase(first, batches_.end());
    return result;
  }

private:
  std::deque<Batch> batches_;
  bool storing_ = false;
};

} // namespace troupe::internal
