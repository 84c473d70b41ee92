#include "troupe/callbacks/encoding/protobuf_writer.hpp"

#include <bit>
#include <cstddef>

#include "troupe/callbacks/encoding/little_endian.hpp"

namespace troupe {

namespace {

constexpr std::size_t max_varint = 10; // bytes of 64 bits, seven in each

std::size_t put_varint(char* out, std::uint64_t x) noexcept {
  std::size_t size = 0;
  for (; x >= 0x80; x >>= 7)
    out[size++] = static_cast<char>(x | 0x80);
  out[size++] = static_cast<char>(x);
  return size;
}

} // namespace

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

// The length is known only after the body; messages are short, so that moving
// them costs less than a pass to measure them.
void protobuf_writer::insert_length(std::size_t begin) {
  char bytes[max_varint];
  out_.insert(begin, bytes, put_varint(bytes, out_.size() - begin));
}

} // namespace troupe
