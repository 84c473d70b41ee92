#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

namespace troupe {

/// The samples of all ranks in the order of a seed.
struct divided_order {
  std::int64_t samples = 0;
  std::uint64_t seed = 0;

  bool operator==(const divided_order&) const = default;

  template <class Archive>
  void serialize(Archive& ar) {
    ar(samples, seed);
  }
};

/// What an `epoch_loop` sees of a loader and of the module's steps for its
/// batches, whatever their type is: a pass is
///
///   feed.begin(epoch);
///   while (feed.next()) ... // the current batch
///   feed.end();
class batch_feed {
public:
  virtual ~batch_feed() = default;

  /// Makes the loader if `fit` was given a function.
  virtual void open() = 0;
  /// Batches of a pass, of this rank.
  virtual std::int64_t size() = 0;
  /// What the ranks divide among them, if the loader says so.
  virtual std::optional<divided_order> divides() = 0;

  virtual void begin(std::uint64_t epoch) = 0;
  /// Goes to the next batch; false if there is none.
  virtual bool next() = 0;
  /// Ends the pass, also before its last batch.
  virtual void end() noexcept = 0;

  // Of the current batch, whose number the module is told.

  /// Samples: the first dimension of the first tensor; 1 if there is none.
  virtual std::int64_t samples() = 0;
  virtual void transfer(at::Device device) = 0;
  virtual void batch_start(std::int64_t index) = 0;
  /// The loss of a training batch; undefined in validation.
  virtual at::Tensor step(std::int64_t index) = 0;
  virtual void batch_end(const at::Tensor& loss, std::int64_t index) = 0;
};

} // namespace troupe
