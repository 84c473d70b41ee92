#include "numbers.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <stdexcept>

#include "troupe/runtime/unix_time.hpp"

namespace troupe::internal::bench {

double now() {
  using seconds = std::chrono::duration<double>;
  return seconds{std::chrono::steady_clock::now().time_since_epoch()}.count();
}

double monotonic(double seconds_since_1970) {
  auto wall = unix_seconds(std::chrono::system_clock::now());
  return now() - (wall - seconds_since_1970);
}

double quantile(std::vector<double> samples, double q) {
  if (samples.empty())
    throw std::logic_error{"nothing was measured"};
  std::sort(samples.begin(), samples.end());
  auto position = q * static_cast<double>(samples.size() - 1);
  auto below = static_cast<std::size_t>(position);
  auto above = std::min(below + 1, samples.size() - 1);
  return std::lerp(samples[below], samples[above],
                   position - static_cast<double>(below));
}

double median(std::vector<double> samples) {
  return quantile(std::move(samples), 0.5);
}

std::string short_number(double x) {
  auto magnitude = x == 0 ? 0 : static_cast<int>(std::floor(std::log10(x)));
  char buffer[64];
  std::snprintf(buffer, sizeof(buffer), "%.*f", std::clamp(2 - magnitude, 0, 6),
                x);
  std::string result = buffer;
  if (result.find('.') == std::string::npos)
    return result;
  result.erase(result.find_last_not_of('0') + 1);
  if (result.back() == '.')
    result.pop_back();
  return result;
}

} // namespace troupe::internal::bench
