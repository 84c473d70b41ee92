#pragma once

// What the trainings of a campaign have in common, and what each has its own
// of: a learner.

#include <cstdint>
#include <memory>
#include <string>

#include <troupe/train.hpp>

namespace troupe::chaos {

/// What a campaign chooses for a training; travels to the ranks.
struct plan {
  std::string expected; ///< Folder of the records.
  std::uint64_t seed = 1;
  int steps = 12;
  int every = 2; ///< Steps from one checkpoint to the next; 0: none.
  int step_us = 5000;
  int bytes = 1500;     ///< Of each file of a checkpoint.
  int fails_at = -1;    ///< Step before which rank 0 fails, once.
  std::string fails_by; ///< "throw", "exit", or a signal's number; "driver <n>"
                        ///< sends it to the driver.
  std::uint64_t driver = 0; ///< Its process.
  std::string failpoint; ///< Armed by the first rank that gets hold of `token`.
  std::string token;
  std::string leaves; ///< What it makes of a preemption: it is "saving" and
                      ///< leaves, leaves "at once", or "never".

  template <class Archive>
  void serialize(Archive& ar) {
    ar(expected, seed, steps, every, step_us, bytes, fails_at, fails_by, driver,
       failpoint, token, leaves);
  }
};

/// All that a step needs of the steps before, or a sum of it.
struct model {
  std::uint64_t step = 0;
  std::uint64_t state = 0;
};

/// What is trained, on one rank.
class learner {
public:
  virtual ~learner() = default;

  /// The state after the step behind *before*; *data* comes from rank 0: a rank
  /// that missed one has another state.
  virtual std::uint64_t train(const model& before, std::uint64_t data) = 0;

  /// What `load` takes after a restart; the state is its sum. Empty: the state
  /// is all there is.
  virtual std::string weights() const { return {}; }
  virtual void load(const std::string&) {}
};

std::uint64_t mixed(std::uint64_t x);
std::uint64_t sum_of(const std::string& bytes);

/// The loop of each rank.
void loop(train_context& context, const plan& x);

// Each program has its own.
std::unique_ptr<learner> make_learner(train_context& context, const plan& x);
result fit(const plan& x, train_options options);

} // namespace troupe::chaos
