#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include <ATen/core/Tensor.h>

#include "troupe/runtime/metrics/metrics.hpp"
#include "troupe/trainers/torch/loop/epoch_means.hpp"
#include "troupe/trainers/torch/loop/log_options.hpp"

namespace troupe {

/// All that was logged in one fit: the latest values, and what the epochs under
/// way have summed up. A validation lies inside of a train epoch and has sums
/// of its own.
class loop_log {
public:
  /// From where values come.
  enum class place { outside, epoch, batch, epoch_end };

  void begin_training();
  void begin_validation();

  /// *samples* weighs the values of a batch.
  void begin_batch(std::int64_t samples);
  void end_batch();

  /// Makes values of the means. See `epoch_means::means`.
  void end_epoch(train_context& context);

  /// Back to the train epoch around the validation, if there is one.
  void end_validation(bool is_training);
  void end_training() { place_ = place::outside; }

  /// See `loop_module::log`.
  void add(train_context& context, const std::string& name,
           const at::Tensor& value, const log_options& options);

  metrics values() const;
  void restore(const metrics& values);

private:
  /// Those of the epoch under way.
  epoch_means& means() { return validating_ ? validation_ : training_; }

  void keep(const std::string& name, const at::Tensor& value) {
    values_.insert_or_assign(name, value);
  }

  place place_ = place::outside;
  std::int64_t samples_ = 1;
  epoch_means training_;
  epoch_means validation_;
  bool validating_ = false;
  std::set<std::string> twofold_;            // logged per step and per epoch
  std::map<std::string, at::Tensor> values_; // doubles, on any device
};

} // namespace troupe
