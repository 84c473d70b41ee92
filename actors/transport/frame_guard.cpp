#include "troupe/actors/transport/frame_guard.hpp"

#include <caf/io/basp/header.hpp>

#include "troupe/runtime/text.hpp"

namespace troupe::internal {

using caf::io::basp::message_type;

static_assert(frame_guard::header_size == caf::io::basp::header_size);

std::uint32_t frame_guard::payload_length(
  std::span<const std::byte, header_size> header) noexcept {
  // Big endian, at offset 4: operation, padding and flags precede it.
  std::uint32_t result = 0;
  for (auto x : header.subspan<4, 4>())
    result = result << 8 | std::to_integer<std::uint32_t>(x);
  return result;
}

std::optional<std::string>
frame_guard::check(std::span<const std::byte, header_size> header) {
  auto operation = std::to_integer<std::uint8_t>(header[0]);
  auto handshake = side_ == side::server ? message_type::client_handshake
                                         : message_type::server_handshake;
  auto is_handshake = operation == static_cast<std::uint8_t>(handshake);
  if (is_handshake == greeted_)
    return greeted_ ? "a second handshake" : "no handshake at the start";
  auto limit = greeted_ ? max_payload : max_handshake;
  greeted_ = true;
  if (auto length = payload_length(header); length > limit)
    return concat("a frame of ", length, " bytes, the limit is ", limit);
  return std::nullopt;
}

} // namespace troupe::internal
