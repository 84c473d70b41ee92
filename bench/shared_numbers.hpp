#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

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

} // namespace troupe::internal::bench
