#pragma once

#include <cstdint>
#include <string>

namespace troupe {

enum class collective_kind : std::uint32_t {
  barrier,
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  gather,
  scatter,
  reduce_scatter,
};

/// What a rank is about to do. Each rank compares its own with those of the
/// others, so that calls that do not fit together are an error on every rank.
struct collective_note {
  std::uint64_t sequence = 0; ///< Filled in by the exchange.
  collective_kind kind = collective_kind::barrier;
  std::uint32_t type = 0;     ///< c10::ScalarType of the elements.
  std::uint32_t op = 0;       ///< `reduction_op`, where there is one.
  std::int32_t root = -1;     ///< -1: none.
  std::uint64_t elements = 0; ///< Of one rank's (part of the) tensor.

  bool operator==(const collective_note&) const = default;
};

/// For people: "all-reduce 12 of 100 elements of float".
std::string to_string(const collective_note& x);

} // namespace troupe
