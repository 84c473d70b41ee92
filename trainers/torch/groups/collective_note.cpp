#include "troupe/trainers/torch/groups/collective_note.hpp"

#include <c10/core/ScalarType.h>

#include "troupe/trainers/torch/groups/reduction.hpp"

namespace troupe {

namespace {

const char* name_of(collective_kind kind) {
  switch (kind) {
    case collective_kind::barrier:
      return "barrier";
    case collective_kind::all_reduce:
      return "all-reduce";
    case collective_kind::reduce:
      return "reduce";
    case collective_kind::broadcast:
      return "broadcast";
    case collective_kind::all_gather:
      return "all-gather";
    case collective_kind::gather:
      return "gather";
    case collective_kind::scatter:
      return "scatter";
    case collective_kind::reduce_scatter:
      return "reduce-scatter";
  }
  return "unknown collective";
}

const char* name_of(reduction_op op) {
  constexpr const char* names[] = {"sum", "average", "product", "min",
                                   "max", "and",     "or",      "xor"};
  return names[static_cast<std::size_t>(op) % std::size(names)];
}

bool reduces(collective_kind kind) {
  return kind == collective_kind::all_reduce || kind == collective_kind::reduce
         || kind == collective_kind::reduce_scatter;
}

} // namespace

std::string to_string(const collective_note& x) {
  std::string result = name_of(x.kind);
  result += ' ';
  result += std::to_string(x.sequence);
  if (x.kind == collective_kind::barrier)
    return result;
  result += " of " + std::to_string(x.elements) + " elements of "
            + c10::toString(static_cast<c10::ScalarType>(x.type));
  if (reduces(x.kind)) {
    result += " (";
    result += name_of(static_cast<reduction_op>(x.op));
    result += ')';
  }
  if (x.root >= 0)
    result += " with root " + std::to_string(x.root);
  return result;
}

} // namespace troupe
