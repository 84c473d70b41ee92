#include "troupe/trainers/torch/groups/streaming_copy.hpp"

#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace troupe {

void streaming_copy(std::byte* to, const std::byte* from,
                    std::size_t bytes) noexcept {
#if defined(__SSE2__)
  constexpr std::size_t line = 64;
  for (; bytes >= line; bytes -= line, to += line, from += line) {
    auto* in = reinterpret_cast<const __m128i*>(from);
    auto* out = reinterpret_cast<__m128i*>(to);
    auto a = _mm_loadu_si128(in);
    auto b = _mm_loadu_si128(in + 1);
    auto c = _mm_loadu_si128(in + 2);
    auto d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
  // Streamed bytes are ordered like others only behind a fence.
  _mm_sfence();
#endif
  if (bytes != 0)
    std::memcpy(to, from, bytes);
}

} // namespace troupe
