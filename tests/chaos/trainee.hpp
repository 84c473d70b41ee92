#pragma once

// What all trainings of a campaign share, and what each program provides: a
// learner.

#include <cstdint>
#include <memory>
#include <string>

#include <troupe/train.hpp>

namespace troupe::chaos {

/// What a campaign chooses for a training; sent to the ranks.
struct plan {
  std::string expected; ///< Folder of the records.
  std::uint64_t seed = 1;
  int steps = 12;
  int every = 2; ///< Steps between checkpoints; 0: none.
  int step_us = 5000;
  int bytes = 1500;     ///< Of each file of a checkpoint.
  int fails_at = -1;    ///< Step before which rank 0 fails, once.
  std::string fails_by; ///< "throw", "exit", or a signal's number; "driver <n>"
                        ///< sends it to the driver.
  std::uint64_t driver = 0; ///< Its process.
  std::string failpoint;    ///< Armed by the first rank that removes `token`.
  std::string token;
  std::string leaves;    ///< What it makes of a preemption: it is "saving" and
                         ///< leaves, leaves "at once", or "never".
  bool on_hosts = false; ///< Each numbers its processes itself.
  int samples = 0;       ///< Of each step, for ranks to divide; 0: rank 0 has
                         ///< what all train on.

  template <class Archive>
  void serialize(Archive& ar) {
    ar(expected, seed, steps, every, step_us, bytes, fails_at, fails_by, driver,
       failpoint, token, leaves, on_hosts, samples);
  }
};

/// All that a step needs from the steps before, or a checksum of it.
struct model {
  std::uint64_t step = 0;
  std::uint64_t state = 0;
};

/// The trained model of one rank.
class learner {
public:
  virtual ~learner() = default;

  /// The state after the step that follows *before*. *data* comes from rank 0:
  /// a rank that missed one ends up with another state.
  virtual std::uint64_t train(const model& before, std::uint64_t data) = 0;

  /// What `load` restores after a restart; the state is its checksum. Empty:
  /// the state is everything.
  virtual std::string weights() const { return {}; }
  virtual void load(const std::string&) {}
};

std::uint64_t mixed(std::uint64_t x);
std::uint64_t sum_of(const std::string& bytes);

/// The train loop of each rank.
void loop(train_context& context, const plan& x);

// Each program defines its own.
std::unique_ptr<learner> make_learner(train_context& context, const plan& x);
result fit(const plan& x, train_options options);

} // namespace troupe::chaos
