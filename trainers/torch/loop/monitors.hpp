#pragma once

#include <optional>
#include <string>

#include "troupe/runtime/metrics/metrics.hpp"
#include "troupe/trainers/early_stopping.hpp"
#include "troupe/trainers/torch/loop/loop_callback.hpp"
#include "troupe/trainers/torch/optim/lr_scheduler.hpp"

namespace troupe {

/// A callback that judges a logged value at the end of validations or train
/// epochs. It looks at the mean of the value over all ranks that have logged
/// it, so that all of them decide alike. A value that was never logged is a
/// `train_error` at the first check.
class monitor_callback : public loop_callback {
public:
  void on_validation_end(epoch_loop& loop) final;
  void on_train_epoch_end(epoch_loop& loop) final;
  callback_phase phase() const final { return callback_phase::monitor; }
  std::string state_key() const final;

protected:
  /// *who* is for sentences. Throws `train_error` if *monitor* is empty.
  monitor_callback(std::string who, std::string monitor,
                   std::optional<bool> check_on_train_epoch_end);

  virtual void check(epoch_loop& loop, double value) = 0;

private:
  bool checks_train_epochs(const epoch_loop& loop) const;
  double value_in(epoch_loop& loop) const;

  std::string who_;
  std::string monitor_;
  std::optional<bool> check_on_train_epoch_end_;
};

/// Ends a fit once a logged value has stopped improving: see `early_stopping`.
/// Rank 0 prints why it ends the fit.
class early_stopping_callback final : public monitor_callback {
public:
  /// With *check_on_train_epoch_end* it checks at the end of train epochs, else
  /// of validations. Unset: the former if every epoch is validated. Throws
  /// `train_error` for an option out of range.
  explicit early_stopping_callback(
    early_stopping_options options,
    std::optional<bool> check_on_train_epoch_end = {});

  metrics state_dict() const override;
  void load_state_dict(const metrics& saved) override;

private:
  void check(epoch_loop& loop, double value) override;

  early_stopping judge_;
};

/// Reduces the learning rates of a fit's optimizer once a logged value has
/// stopped improving: see `reduce_lr_on_plateau`. The optimizer has no other
/// schedule.
class plateau_callback final : public monitor_callback {
public:
  /// As `early_stopping_callback`.
  explicit plateau_callback(std::string monitor, plateau_options options = {},
                            std::optional<bool> check_on_train_epoch_end = {});

  void on_fit_start(epoch_loop& loop) override;
  metrics state_dict() const override;
  void load_state_dict(const metrics& saved) override;

private:
  void check(epoch_loop& loop, double value) override;

  plateau_options options_;
  plateau_state state_;
};

} // namespace troupe
