#include "troupe/callbacks/encoding/binary.hpp"

#include <gtest/gtest.h>

namespace troupe::internal {
namespace {

TEST(protobuf_writer_test, writes_messages_within_messages) {
  std::string out = "before";
  protobuf_writer message{out};
  add_message(message, 1, [](protobuf_writer& outer) {
    add_message(outer, 2, [](protobuf_writer& inner) {
      inner.add_int64(1, 1);
      inner.add_bytes(2, std::string(200, 'x'));
    });
    add_message(outer, 3, [](protobuf_writer&) {});
  });
  EXPECT_EQ(out, std::string("before\x0a\xd2\x01\x12\xcd\x01\x08\x01\x12\xc8"
                             "\x01")
                   + std::string(200, 'x') + std::string("\x1a\0", 2));
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
} // namespace troupe::internal
