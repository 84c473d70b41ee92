#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace troupe {

class train_context;

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
  /// mean over all ranks that rank 0 has no value of.
  std::map<std::string, double> means(train_context& context) const;

  void clear() { entries_.clear(); }

private:
  struct entry {
    at::Tensor sum;
    double weight = 0;
    bool over_ranks = false;
  };

  /// Names of means over all ranks, in rank 0's order.
  std::vector<std::string> shared_names(train_context& context) const;

  std::map<std::string, entry> entries_;
};

} // namespace troupe
