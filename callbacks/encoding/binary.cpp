#include "troupe/callbacks/encoding/binary.hpp"

#include <array>
#include <bit>
#include <cstddef>

namespace troupe {

namespace {

using tables = std::array<std::array<std::uint32_t, 256>, 8>;

// Table k advances a byte's remainder over k more zero bytes, so that a step
// consumes eight bytes.
constexpr tables make_tables() {
  tables result{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    auto crc = byte;
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
    result[0][byte] = crc;
  }
  for (std::size_t k = 1; k < result.size(); ++k)
    for (std::size_t byte = 0; byte < 256; ++byte) {
      auto before = result[k - 1][byte];
      result[k][byte] = (before >> 8) ^ result[0][before & 0xff];
    }
  return result;
}

constexpr tables table = make_tables();

constexpr std::size_t max_varint = 10; // bytes of 64 bits, seven in each

std::size_t put_varint(char* out, std::uint64_t x) noexcept {
  std::size_t size = 0;
  for (; x >= 0x80; x >>= 7)
    out[size++] = static_cast<char>(x | 0x80);
  out[size++] = static_cast<char>(x);
  return size;
}

} // namespace

std::uint32_t crc32c(std::string_view bytes) noexcept {
  std::uint32_t crc = ~0u;
  auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
    auto low =
      crc ^ (at(0) | at(1) << 8 | at(2) << 16 | std::uint32_t{at(3)} << 24);
    crc = table[7][low & 0xff] ^ table[6][low >> 8 & 0xff]
          ^ table[5][low >> 16 & 0xff] ^ table[4][low >> 24] ^ table[3][at(4)]
          ^ table[2][at(5)] ^ table[1][at(6)] ^ table[0][at(7)];
  }
  for (unsigned char byte : bytes)
    crc = (crc >> 8) ^ table[0][(crc ^ byte) & 0xff];
  return ~crc;
}

void protobuf_writer::append_varint(std::uint64_t x) {
  char bytes[max_varint];
  out_.append(bytes, put_varint(bytes, x));
}

void protobuf_writer::add_key(std::uint32_t field, unsigned wire_type) {
  append_varint(std::uint64_t{field} << 3 | wire_type);
}

void protobuf_writer::add_varint(std::uint32_t field, std::uint64_t x) {
  add_key(field, 0);
  append_varint(x);
}

void protobuf_writer::add_fixed32(std::uint32_t field, std::uint32_t x) {
  add_key(field, 5);
  append_little_endian(out_, x);
}

void protobuf_writer::add_fixed64(std::uint32_t field, std::uint64_t x) {
  add_key(field, 1);
  append_little_endian(out_, x);
}

void protobuf_writer::add_float(std::uint32_t field, float x) {
  add_fixed32(field, std::bit_cast<std::uint32_t>(x));
}

void protobuf_writer::add_double(std::uint32_t field, double x) {
  add_fixed64(field, std::bit_cast<std::uint64_t>(x));
}

void protobuf_writer::add_bytes(std::uint32_t field, std::string_view x) {
  add_key(field, 2);
  append_varint(x.size());
  out_ += x;
}

void protobuf_writer::add_packed(std::uint32_t field,
                                 std::span<const double> x) {
  if (x.empty())
    return;
  add_key(field, 2);
  append_varint(x.size() * sizeof(double));
  for (auto value : x)
    append_little_endian(out_, std::bit_cast<std::uint64_t>(value));
}

// The length is known only after the body. Messages are short: moving one costs
// less than a pass to measure it.
void protobuf_writer::insert_length(std::size_t begin) {
  char bytes[max_varint];
  out_.insert(begin, bytes, put_varint(bytes, out_.size() - begin));
}

} // namespace troupe
