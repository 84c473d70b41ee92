#include "troupe/callbacks/encoding/binary.hpp"

#include <array>
#include <cstddef>

namespace troupe::internal {

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

} // namespace troupe::internal
