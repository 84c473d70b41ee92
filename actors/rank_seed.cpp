#include "troupe/actors/rank_seed.hpp"

#include <caf/binary_deserializer.hpp>
#include <caf/binary_serializer.hpp>
#include <caf/byte_buffer.hpp>

namespace troupe {

namespace {

template <class Inspector>
bool inspect_seed(Inspector& f, rank_seed& x) {
  return f.apply(x.attempt) && f.apply(x.rank) && f.apply(x.token);
}

} // namespace

std::string rank_seed::to_bytes() const {
  caf::byte_buffer buffer;
  caf::binary_serializer sink{nullptr, buffer};
  auto copy = *this;
  inspect_seed(sink, copy);
  return {reinterpret_cast<const char*>(buffer.data()), buffer.size()};
}

expected<rank_seed> rank_seed::from_bytes(const std::string& bytes) {
  rank_seed result;
  caf::binary_deserializer source{
    nullptr, caf::as_bytes(caf::make_span(bytes.data(), bytes.size()))};
  if (!inspect_seed(source, result))
    return failure(ec::protocol, "a rank process got a malformed seed");
  return result;
}

} // namespace troupe
