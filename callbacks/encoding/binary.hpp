#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace troupe {

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

/// Appends fields of one protobuf message, in wire format, to a string.
///
/// Knows no schema: the caller passes field numbers and may omit fields with
/// default values to keep the message short.
class protobuf_writer {
public:
  /// *out* must outlive the writer and keeps its content.
  explicit protobuf_writer(std::string& out) : out_(out) {}

  /// For uint32, uint64, bool and enumerations.
  void add_varint(std::uint32_t field, std::uint64_t x);
  /// For int32 and int64; a negative value takes ten bytes.
  void add_int(std::uint32_t field, std::int64_t x) {
    add_varint(field, static_cast<std::uint64_t>(x));
  }
  void add_fixed32(std::uint32_t field, std::uint32_t x);
  void add_fixed64(std::uint32_t field, std::uint64_t x);
  void add_float(std::uint32_t field, float x);
  void add_double(std::uint32_t field, double x);
  /// For string and bytes. Protobuf's strings are UTF-8; see `utf8_text`.
  void add_bytes(std::uint32_t field, std::string_view x);
  /// For `repeated double`, packed; nothing for an empty list.
  void add_packed(std::uint32_t field, std::span<const double> x);

  /// For a nested message: calls *body* with its writer.
  template <class Body>
  void add_message(std::uint32_t field, Body body) {
    add_key(field, 2);
    auto begin = out_.size();
    body(*this);
    insert_length(begin);
  }

private:
  void add_key(std::uint32_t field, unsigned wire_type);
  void append_varint(std::uint64_t x);
  void insert_length(std::size_t begin);

  std::string& out_;
};

} // namespace troupe
