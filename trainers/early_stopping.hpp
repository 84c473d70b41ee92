#pragma once

#include <optional>
#include <string>

#include <cereal/types/optional.hpp>
#include <cereal/types/string.hpp>

#include "troupe/runtime/config/run_config.hpp"
#include "troupe/runtime/metrics/metrics.hpp"

namespace troupe {

/// When `early_stopping` ends a training. Names and defaults are Lightning's.
struct early_stopping_options {
  /// Name of the value; only `step(double)` works without it.
  std::string monitor = {};
  score_order mode = score_order::min;
  /// Values in a row without an improvement that end the training.
  int patience = 3;
  /// A change of at most this much is not an improvement.
  double min_delta = 0;
  /// NaN and infinities end the training at once.
  bool check_finite = true;
};

/// What a checkpoint saves of an `early_stopping`, by cereal.
struct early_stopping_state {
  std::optional<double> best;
  int waited = 0;
  std::string reason;

  bool operator==(const early_stopping_state&) const = default;

  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(best), CEREAL_NVP(waited), CEREAL_NVP(reason));
  }
};

/// Says when a value has stopped improving, in any loop; in an `epoch_loop`,
/// `early_stopping_callback` asks it:
///
///   troupe::early_stopping stopping{{.monitor = "val/loss", .patience = 5}};
///   ...
///   if (stopping.step(values))
///     context.request_stop(stopping.reason()); // ends the run with the report
///   context.report(values, state);
///
/// One rank is enough to end a run. If ranks leave their loops by it, give it
/// the same value on each.
class early_stopping {
public:
  /// Throws `train_error` for an option out of range.
  explicit early_stopping(early_stopping_options options = {});

  /// Judges *value*. Returns whether to end the training; `reason()` says why.
  bool step(double value);

  /// The same for the value that is called `early_stopping_options::monitor`;
  /// throws as `metrics::number` does.
  bool step(const metrics& values);

  /// Best value so far, over all attempts.
  std::optional<double> best() const noexcept { return state_.best; }
  /// Values since then.
  int waited() const noexcept { return state_.waited; }
  /// Why the last `step` says to end the training, in one sentence; empty if it
  /// should continue.
  const std::string& reason() const noexcept { return state_.reason; }

  const early_stopping_options& options() const noexcept { return options_; }

  const early_stopping_state& state() const noexcept { return state_; }
  /// Continues from *x*.
  void load_state(const early_stopping_state& x) { state_ = x; }

private:
  bool improves(double value) const;

  early_stopping_options options_;
  early_stopping_state state_;
};

} // namespace troupe
