#pragma once

#include <optional>
#include <string>

#include "troupe/runtime/config/run_config.hpp"
#include "troupe/trainers/torch/loop/loop_callback.hpp"

namespace troupe {

/// When `early_stopping` ends a fit. Names and defaults are Lightning's.
struct early_stopping_options {
  std::string monitor; ///< Name of a logged value.
  score_order mode = score_order::min;
  /// Checks in a row without an improvement that end the fit.
  int patience = 3;
  /// A change of at most this much is not an improvement.
  double min_delta = 0;
  /// NaN and infinities end the fit at once.
  bool check_finite = true;
  /// Check at the end of train epochs instead of validations. Unset: yes if
  /// every epoch is validated.
  std::optional<bool> check_on_train_epoch_end = {};
};

/// Ends a fit once a logged value stops to improve. It looks at the mean of the
/// value over all ranks, so that all of them stop after the same epoch. A value
/// that was never logged is a `train_error` at the first check. Rank 0 prints
/// why it ends the fit.
class early_stopping final : public loop_callback {
public:
  /// Throws `train_error` for an option out of range.
  explicit early_stopping(early_stopping_options options);

  /// Best value so far, over all attempts.
  std::optional<double> best() const noexcept { return best_; }
  /// Checks since then.
  int waited() const noexcept { return waited_; }
  /// Why the fit was ended, in one sentence; empty if it was not.
  const std::string& reason() const noexcept { return reason_; }

  void on_validation_end(epoch_loop& loop) override;
  void on_train_epoch_end(epoch_loop& loop) override;
  metrics state_dict() const override;
  void load_state_dict(const metrics& saved) override;
  std::string state_key() const override;
  callback_phase phase() const override { return callback_phase::monitor; }

private:
  bool checks_train_epochs(const epoch_loop& loop) const;
  void check(epoch_loop& loop);
  double monitored(epoch_loop& loop) const;
  bool improves(double value) const;

  early_stopping_options options_;
  std::optional<double> best_;
  int waited_ = 0;
  std::string reason_;
};

} // namespace troupe
