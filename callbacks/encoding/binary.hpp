#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#define PROTOZERO_USE_VIEW std::string_view
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>

namespace troupe::internal {

/// Appends the bytes of *x*, least significant first.
template <std::unsigned_integral T>
void append_little_endian(std::string& out, T x) {
  char bytes[sizeof(T)];
  for (std::size_t i = 0; i < sizeof(T); ++i)
    bytes[i] = static_cast<char>(x >> (8 * i));
  out.append(bytes, sizeof(T));
}

/// CRC-32C (Castagnoli, RFC 3720) of *bytes*.
std::uint32_t crc32c(std::string_view bytes) noexcept;

/// CRC-32C as TensorFlow's record files store it: rotated and offset, so that a
/// record may itself contain checksums.
constexpr std::uint32_t masked_crc(std::uint32_t crc) noexcept {
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

/// Appends fields of one protobuf message to a string.
using protobuf_writer = protozero::pbf_writer;
using protobuf_reader = protozero::pbf_reader;

/// Appends a nested message: calls *body* with its writer. An empty message is
/// written, too; protozero's own nested writers leave it out.
template <class Body>
void add_message(protobuf_writer& out, std::uint32_t field, Body body) {
  std::string bytes;
  protobuf_writer inner{bytes};
  body(inner);
  out.add_message(field, bytes);
}

} // namespace troupe::internal
