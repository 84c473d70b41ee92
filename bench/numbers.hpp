#pragma once

#include <string>
#include <vector>

namespace troupe::internal::bench {

/// Seconds of the monotonic clock, which all processes of a host share.
double now();

/// A time of the system's clock, in seconds since 1970, on that clock.
double monotonic(double seconds_since_1970);

/// The value below which the fraction *q* of *samples* (at least one) lies,
/// interpolated between two samples.
double quantile(std::vector<double> samples, double q);

double median(std::vector<double> samples);

/// *x* with three significant digits and no exponent.
std::string short_number(double x);

} // namespace troupe::internal::bench
