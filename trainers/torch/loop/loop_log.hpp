#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "troupe/runtime/metrics/metrics.hpp"

namespace troupe {

/// How `log` treats a value. Defaults are Lightning's.
///
/// A value that is kept both per step and per epoch has three names: `x_step`,
/// `x_epoch`, and `x`, which is the latest of the two.
struct log_options {
  /// The value counts at once, as it is. Unset: in a training batch only.
  std::optional<bool> on_step = {};
  /// The mean over the epoch counts, at its end. Unset: everywhere but in a
  /// training batch. At the end of an epoch a value counts at once.
  std::optional<bool> on_epoch = {};
  /// The mean over all ranks instead of this rank's. On every step it costs a
  /// collective, so that every rank must log it in the same batches; an epoch's
  /// means travel together, once, and ranks may have different batches and
  /// names: a mean is over what was logged.
  bool sync_dist = false;
  /// Weight of the value in the mean over the epoch. Unset: the size of the
  /// batch, which is the first dimension of its first tensor.
  std::optional<std::int64_t> batch_size = {};
};

class train_context;

namespace internal {

/// Weighted means of the values logged during one epoch, by name. Sums are
/// float64 and stay on the device of the values until the end.
class epoch_means {
public:
  /// Adds one number. *over_ranks* says whether the mean is over all ranks;
  /// throws `train_error` if *name* came with the other answer before.
  void add(const std::string& name, const at::Tensor& value, double weight,
           bool over_ranks);

  /// The means. A collective if the world has more than one rank: a rank
  /// without a value of a name adds nothing to it. Throws `train_error` for a
  /// name that is a mean over all ranks on some of them only.
  std::map<std::string, double> means(train_context& context) const;

  void clear() { entries_.clear(); }

private:
  struct entry {
    at::Tensor sum;
    double weight = 0;
    bool over_ranks = false;
  };

  /// Names of means over all ranks, of any rank, sorted.
  std::vector<std::string> shared_names(train_context& context) const;

  std::map<std::string, entry> entries_;
};

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
  /// Those that were kept since `begin_training`.
  metrics values_of_epoch() const;
  void restore(const metrics& values);

private:
  /// The means of the epoch under way.
  epoch_means& means() { return validating_ ? validation_ : training_; }

  void keep(const std::string& name, const at::Tensor& value) {
    values_.insert_or_assign(name, value);
    of_epoch_.insert(name);
  }

  place place_ = place::outside;
  std::int64_t samples_ = 1;
  epoch_means training_;
  epoch_means validation_;
  bool validating_ = false;
  std::set<std::string> twofold_;            // logged per step and per epoch
  std::set<std::string> of_epoch_;           // logged in the epoch under way
  std::map<std::string, at::Tensor> values_; // doubles, on any device
};

} // namespace internal

} // namespace troupe
