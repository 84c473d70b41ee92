#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace troupe::internal {

/// Slices begin at cache lines: no two ranks write to the same one.
inline constexpr std::size_t segment_line = 64;

inline void copy_bytes(std::byte* to, const std::byte* from,
                       std::size_t bytes) {
  if (bytes != 0 && to != from)
    std::memcpy(to, from, bytes);
}

/// Part of a tensor, in bytes.
struct segment_piece {
  std::size_t begin = 0;
  std::size_t size = 0;
};

/// A tensor cut into chunks of equal size (the last may be smaller).
class segment_chunks {
public:
  /// Of *bytes*, each at most *limit* and a multiple of a cache line.
  segment_chunks(std::size_t bytes, std::size_t limit) : bytes_(bytes) {
    limit = std::max(limit / segment_line * segment_line, segment_line);
    count_ = (bytes + limit - 1) / limit;
    auto even = count_ == 0 ? 0 : (bytes + count_ - 1) / count_;
    size_ = (even + segment_line - 1) / segment_line * segment_line;
  }

  /// The same parts of each of *number* tensors like *one*, next to each other.
  static segment_chunks of_many(const segment_chunks& one, std::size_t number) {
    auto result = one;
    result.bytes_ *= number;
    result.size_ *= number;
    return result;
  }

  std::size_t count() const { return count_; }

  /// Of all but the last, which may be smaller.
  std::size_t size() const { return size_; }

  segment_piece operator[](std::size_t i) const {
    auto begin = std::min(i * size_, bytes_);
    return {begin, std::min(size_, bytes_ - begin)};
  }

private:
  std::size_t bytes_;
  std::size_t count_ = 0;
  std::size_t size_ = 0;
};

/// The slice of *part* that *rank* reduces. It lies at the same place in every
/// chunk of *all*, also in a smaller last one: while a rank copies chunk k+2
/// into its area, others still read its result of chunk k from there.
inline segment_piece segment_slice(const segment_chunks& all,
                                   segment_piece part, int rank, int ranks) {
  auto share = (all.size() + static_cast<std::size_t>(ranks) - 1)
               / static_cast<std::size_t>(ranks);
  share = (share + segment_line - 1) / segment_line * segment_line;
  auto begin = std::min(share * static_cast<std::size_t>(rank), part.size);
  return {begin, std::min(share, part.size - begin)};
}

} // namespace troupe::internal
