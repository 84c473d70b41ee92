#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace troupe::internal {

/// One point of a curve, which stands for one or more samples.
struct curve_point {
  static constexpr double nan = std::numeric_limits<double>::quiet_NaN();

  double x = 0;       ///< Report index or step; the mean over the samples.
  double seconds = 0; ///< Since the run began; the mean over the samples.
  double mean = nan;  ///< Of the finite values; NaN if there are none.
  double min = nan;
  double max = nan;
  std::uint64_t segment = 0;    ///< Points of two segments are not joined.
  std::uint64_t samples = 1;    ///< How many reports it stands for.
  std::uint64_t valid = 0;      ///< Those of them with a finite value.
  std::uint64_t not_finite = 0; ///< Values that were NaN or infinite.
};

/// The point of one report: mean, minimum and maximum of *values*, by rank.
curve_point point_of(double x, double seconds, std::uint64_t segment,
                     std::span<const double> values);

/// A metric over the run in a bounded number of points.
///
/// Once there are too many, neighbors become one: their mean, and the minimum
/// and maximum of both, so that no peak is lost.
class curve {
public:
  /// Enough for one per pixel.
  static constexpr std::size_t max_points = 1000;

  void add(const curve_point& x);

  const std::vector<curve_point>& points() const noexcept { return points_; }

  /// All that was added, as one point.
  const curve_point& total() const noexcept { return total_; }

  /// What was added last.
  const curve_point& last() const noexcept { return last_; }

  /// The same curve in at most *count* points.
  std::vector<curve_point> reduced(std::size_t count) const;

private:
  std::vector<curve_point> points_;
  curve_point total_{.samples = 0};
  curve_point last_;
  std::uint64_t stride_ = 1; ///< Samples that a full point stands for.
};

} // namespace troupe::internal
