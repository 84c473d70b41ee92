#pragma once

#include <string>

#include <zlib.h>

namespace troupe::internal::test {

/// *bytes* in zlib's or gzip's format, unpacked as far as they are valid.
inline std::string unpacked(const std::string& bytes) {
  z_stream stream{};
  ::inflateInit2(&stream, 15 + 32);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  std::string result;
  char buffer[65536];
  for (auto code = Z_OK; code == Z_OK;) {
    stream.next_out = reinterpret_cast<Bytef*>(buffer);
    stream.avail_out = sizeof(buffer);
    code = ::inflate(&stream, Z_NO_FLUSH);
    result.append(buffer, sizeof(buffer) - stream.avail_out);
  }
  ::inflateEnd(&stream);
  return result;
}

} // namespace troupe::internal::test
