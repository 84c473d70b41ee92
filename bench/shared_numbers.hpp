#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "numbers.hpp"

namespace troupe::internal::bench {

/// Numbers in a file that several processes map: ranks use them to pass their
/// times to this program. All are 0 at first.
class shared_numbers {
public:
  /// The *count* numbers of the file *path*, which is created if it is missing.
  shared_numbers(const std::string& path, std::size_t count);
  ~shared_numbers();

  shared_numbers(const shared_numbers&) = delete;
  shared_numbers& operator=(const shared_numbers&) = delete;

  double& operator[](std::size_t i) { return numbers_[i]; }

  std::size_t size() const noexcept { return numbers_.size(); }

  std::vector<double> part(std::size_t begin, std::size_t count) const;

  double max() const;

private:
  std::span<double> numbers_;
};

/// Calls *f* repeatedly; writes the seconds of each call to *out* from *at* on.
template <class F>
void time_calls(int calls, shared_numbers& out, std::size_t at, F&& f) {
  auto before = now();
  for (int i = 0; i < calls; ++i) {
    f(i);
    auto after = now();
    out[at++] = after - std::exchange(before, after);
  }
}

} // namespace troupe::internal::bench
