#pragma once

#include <cstddef>
#include <vector>

namespace troupe::internal {

/// Places for the trials of a sweep that are under way, each with cores and
/// GPUs of this host that no other trial has meanwhile.
class trial_slots {
public:
  struct slot {
    std::size_t number = 0;
    std::vector<int> cores; ///< Empty: those of the sweep, with other trials.
    std::vector<int> gpus;  ///< Empty: trials use none.

    bool operator==(const slot&) const = default;
  };

  /// What each trial claims.
  struct claim {
    int cores = 0;
    int gpus = 0;
  };

  /// *count* places. Trials share *cores* if there are too few for their
  /// claims; the host must have enough GPUs, which are numbered from 0.
  trial_slots(int count, const std::vector<int>& cores, claim each);

  bool has_room() const noexcept;

  /// Takes the first place that is free. There must be one.
  slot take();

  /// Frees a place that was taken.
  void give_back(const slot& x);

private:
  std::vector<slot> slots_;
  std::vector<bool> taken_;
};

} // namespace troupe::internal
