#include "troupe/callbacks/encoding/binary.hpp"

#include <array>
#include <cstdio>
#include <limits>

#include <gtest/gtest.h>

namespace troupe {
namespace {

std::string hex(std::string_view bytes) {
  std::string result;
  for (unsigned char c : bytes) {
    char text[3];
    std::snprintf(text, sizeof(text), "%02x", c);
    result += text;
  }
  return result;
}

template <class Add>
std::string wire(Add add) {
  std::string out;
  add(protobuf_writer{out});
  return hex(out);
}

TEST(protobuf_writer_test, writes_varints_of_every_length) {
  auto varint = [](std::uint64_t x) {
    return wire([x](auto w) { w.add_varint(1, x); });
  };
  EXPECT_EQ(varint(0), "0800");
  EXPECT_EQ(varint(127), "087f");
  EXPECT_EQ(varint(128), "088001");
  EXPECT_EQ(varint(150), "089601");
  EXPECT_EQ(varint(std::uint64_t{1} << 40), "08808080808020");
  EXPECT_EQ(varint(std::numeric_limits<std::uint64_t>::max()),
            "08ffffffffffffffffff01");
}

TEST(protobuf_writer_test, writes_a_negative_int_in_ten_bytes) {
  EXPECT_EQ(wire([](auto w) { w.add_int(2, -1); }), "10ffffffffffffffffff01");
}

TEST(protobuf_writer_test, writes_a_field_number_above_15_in_two_bytes) {
  EXPECT_EQ(wire([](auto w) { w.add_varint(16, 1); }), "800101");
}

TEST(protobuf_writer_test, writes_fixed_numbers_with_the_lowest_byte_first) {
  EXPECT_EQ(wire([](auto w) { w.add_fixed32(1, 0x01020304); }), "0d04030201");
  EXPECT_EQ(wire([](auto w) { w.add_fixed64(1, 0x0102030405060708); }),
            "090807060504030201");
  EXPECT_EQ(wire([](auto w) { w.add_float(2, 0.5F); }), "150000003f");
  EXPECT_EQ(wire([](auto w) { w.add_double(1, 1.0); }), "09000000000000f03f");
}

TEST(protobuf_writer_test, writes_texts_with_their_length) {
  EXPECT_EQ(wire([](auto w) { w.add_bytes(2, "testing"); }),
            "120774657374696e67");
  EXPECT_EQ(wire([](auto w) { w.add_bytes(2, ""); }), "1200");
}

TEST(protobuf_writer_test, writes_packed_doubles_and_nothing_for_none) {
  std::array values{0.0, 1.0};
  EXPECT_EQ(wire([&](auto w) { w.add_packed(6, values); }),
            "32100000000000000000000000000000f03f");
  EXPECT_EQ(wire([](auto w) { w.add_packed(6, {}); }), "");
}

TEST(protobuf_writer_test, writes_messages_within_messages) {
  EXPECT_EQ(wire([](auto w) {
              w.add_message(1, [](auto& outer) {
                outer.add_message(2, [](auto& inner) { inner.add_int(1, 1); });
                outer.add_message(3, [](auto&) {});
              });
            }),
            "0a06120208011a00");
}

TEST(protobuf_writer_test, writes_a_message_longer_than_127_bytes) {
  std::string text(200, 'x');
  std::string out;
  protobuf_writer{out}.add_message(
    1, [&](auto& inner) { inner.add_bytes(1, text); });
  EXPECT_EQ(hex(out.substr(0, 6)), "0acb010ac801");
  EXPECT_EQ(out.substr(6), text);
}

TEST(crc32c_test, agrees_with_the_published_vectors) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(masked_crc(crc32c("123456789")), 0xc78ab0e5u);
}

// Bit by bit, as the polynomial says.
std::uint32_t plain_crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (unsigned char byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
  }
  return ~crc;
}

TEST(crc32c_test, agrees_with_the_polynomial_for_every_length) {
  std::string bytes;
  for (unsigned i = 0; i < 70; ++i) {
    EXPECT_EQ(crc32c(bytes), plain_crc32c(bytes)) << i << " bytes";
    bytes += static_cast<char>(i * 151 + 200);
  }
}

} // namespace
} // namespace troupe
