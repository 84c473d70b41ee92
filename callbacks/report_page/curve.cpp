#include "troupe/callbacks/report_page/curve.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::internal {

namespace {

double average(double a, std::uint64_t count_a, double b,
               std::uint64_t count_b) {
  if (count_a == 0 || count_b == 0)
    return count_a == 0 ? b : a;
  auto share =
    static_cast<double>(count_b) / static_cast<double>(count_a + count_b);
  return std::lerp(a, b, share); // the difference may be too large
}

void merge(curve_point& a, const curve_point& b) {
  a.x = average(a.x, a.samples, b.x, b.samples);
  a.seconds = average(a.seconds, a.samples, b.seconds, b.samples);
  a.mean = average(a.mean, a.valid, b.mean, b.valid);
  a.min = std::fmin(a.min, b.min); // a NaN counts as missing
  a.max = std::fmax(a.max, b.max);
  a.segment = b.segment;
  a.samples += b.samples;
  a.valid += b.valid;
  a.not_finite += b.not_finite;
}

/// Merges neighbors until no more than *count* points are left; those of two
/// segments only if there are too many segments. Returns how many samples a
/// point may stand for now.
std::uint64_t reduce(std::vector<curve_point>& points, std::size_t count,
                     std::uint64_t stride) {
  bool across = false;
  while (points.size() > count) {
    auto before = points.size();
    stride *= 2;
    std::size_t end = 0;
    for (std::size_t i = 1; i < before; ++i) {
      auto& last = points[end];
      auto& next = points[i];
      if (last.samples + next.samples <= stride
          && (across || last.segment == next.segment))
        merge(last, next);
      else
        points[++end] = next;
    }
    points.resize(end + 1);
    across = points.size() > before - before / 4;
  }
  return stride;
}

} // namespace

curve_point point_of(double x, double seconds, std::uint64_t segment,
                     std::span<const double> values) {
  curve_point result{.x = x, .seconds = seconds, .segment = segment};
  double mean = 0;
  std::size_t count = 0;
  for (auto value : values) {
    if (!std::isfinite(value)) {
      ++result.not_finite;
      continue;
    }
    mean = std::lerp(mean, value, 1.0 / static_cast<double>(++count));
    result.min = std::fmin(result.min, value);
    result.max = std::fmax(result.max, value);
  }
  if (count > 0) {
    result.mean = mean;
    result.valid = 1;
  }
  return result;
}

void curve::add(const curve_point& x) {
  last_ = x;
  merge(total_, x);
  if (!points_.empty() && points_.back().segment == x.segment
      && points_.back().samples + x.samples <= stride_)
    merge(points_.back(), x);
  else
    points_.push_back(x);
  stride_ = reduce(points_, max_points, stride_);
}

std::vector<curve_point> curve::reduced(std::size_t count) const {
  auto result = points_;
  reduce(result, std::max<std::size_t>(count, 1), stride_);
  return result;
}

} // namespace troupe::internal
