#include "troupe/trainers/torch/groups/reduction.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

// One version of the code per generation of vector units, chosen when the
// program is loaded. All callees are inlined.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>
#define TROUPE_VECTOR_CLONES                                                   \
  __attribute__((flatten, target_clones("avx512f", "avx2", "default")))
#else
#define TROUPE_VECTOR_CLONES
#endif
#define TROUPE_INLINE inline __attribute__((always_inline))

namespace troupe::internal {

std::optional<element_type> element_type_of(at::ScalarType type) noexcept {
  switch (type) {
    case at::kFloat:
      return element_type::float32;
    case at::kDouble:
      return element_type::float64;
    case at::kHalf:
      return element_type::float16;
    case at::kBFloat16:
      return element_type::bfloat16;
    case at::kChar:
      return element_type::int8;
    case at::kByte:
      return element_type::uint8;
    case at::kShort:
      return element_type::int16;
    case at::kInt:
      return element_type::int32;
    case at::kLong:
      return element_type::int64;
    case at::kBool:
      return element_type::boolean;
    default:
      return std::nullopt;
  }
}

std::size_t size_of(element_type type) noexcept {
  switch (type) {
    case element_type::float64:
    case element_type::int64:
      return 8;
    case element_type::float32:
    case element_type::int32:
      return 4;
    case element_type::float16:
    case element_type::bfloat16:
    case element_type::int16:
      return 2;
    default:
      return 1;
  }
}

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

namespace {

/// Elements that are reduced at a time: their sums fit into the L1 cache.
constexpr std::size_t block = 1024;

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
__attribute__((target("avx,f16c"))) std::size_t
widen_vectors(const std::uint16_t* from, float* to, std::size_t count) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(
                               reinterpret_cast<const __m128i*>(from + i))));
  return i;
}

__attribute__((target("avx,f16c"))) std::size_t
narrow_vectors(const float* from, std::uint16_t* to, std::size_t count) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm_storeu_si128(
      reinterpret_cast<__m128i*>(to + i),
      _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  return i;
}

const bool has_half_vectors = __builtin_cpu_supports("f16c");
#else
std::size_t widen_vectors(const std::uint16_t*, float*, std::size_t) {
  return 0;
}

std::size_t narrow_vectors(const float*, std::uint16_t*, std::size_t) {
  return 0;
}

constexpr bool has_half_vectors = false;
#endif

struct half {
  std::uint16_t bits;
};

struct brain {
  std::uint16_t bits;
};

/// What a *T* is reduced as.
template <class T>
struct wide {
  using type = T;
};

template <>
struct wide<half> {
  using type = float;
};

template <>
struct wide<brain> {
  using type = float;
};

template <class T, class W>
TROUPE_INLINE void load(const T* from, W* to, std::size_t count) {
  if constexpr (std::is_same_v<T, half>) {
    auto* bits = reinterpret_cast<const std::uint16_t*>(from);
    auto done = has_half_vectors ? widen_vectors(bits, to, count) : 0;
    for (; done < count; ++done)
      to[done] = c10::Half{bits[done], c10::Half::from_bits()};
  } else if constexpr (std::is_same_v<T, brain>) {
    for (std::size_t i = 0; i < count; ++i) {
      std::uint32_t bits = static_cast<std::uint32_t>(from[i].bits) << 16;
      std::memcpy(to + i, &bits, sizeof(bits));
    }
  } else if constexpr (std::is_same_v<T, W>) {
    std::memcpy(to, from, count * sizeof(T));
  } else {
    for (std::size_t i = 0; i < count; ++i)
      to[i] = from[i];
  }
}

template <class T, class W>
TROUPE_INLINE void store(const W* from, T* to, std::size_t count) {
  if constexpr (std::is_same_v<T, half>) {
    auto* bits = reinterpret_cast<std::uint16_t*>(to);
    auto done = has_half_vectors ? narrow_vectors(from, bits, count) : 0;
    for (; done < count; ++done)
      bits[done] = c10::Half{from[done]}.x;
  } else if constexpr (std::is_same_v<T, brain>) {
    for (std::size_t i = 0; i < count; ++i) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, from + i, sizeof(bits));
      // To nearest, ties to even; a NaN keeps its sign and becomes quiet.
      auto rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
      auto nan = (bits >> 16) | 0x40;
      to[i].bits = static_cast<std::uint16_t>(
        (bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
    }
  } else if constexpr (std::is_same_v<T, W>) {
    std::memcpy(to, from, count * sizeof(T));
  } else {
    for (std::size_t i = 0; i < count; ++i)
      to[i] = static_cast<T>(from[i]);
  }
}

template <reduction_op Op, class W>
TROUPE_INLINE W combine(W a, W b) {
  using op = reduction_op;
  if constexpr (Op == op::sum) {
    // Integers wrap around.
    if constexpr (std::is_integral_v<W>)
      return static_cast<W>(static_cast<std::uint64_t>(a)
                            + static_cast<std::uint64_t>(b));
    else
      return a + b;
  } else if constexpr (Op == op::product) {
    if constexpr (std::is_integral_v<W>)
      return static_cast<W>(static_cast<std::uint64_t>(a)
                            * static_cast<std::uint64_t>(b));
    else
      return a * b;
  } else if constexpr (Op == op::min) {
    return (a != a) | (a < b) ? a : b;
  } else if constexpr (Op == op::max) {
    return (a != a) | (a > b) ? a : b;
  } else if constexpr (Op == op::bit_and) {
    return static_cast<W>(a & b);
  } else if constexpr (Op == op::bit_or) {
    return static_cast<W>(a | b);
  } else {
    return static_cast<W>(a ^ b);
  }
}

template <class T, reduction_op Op, class W = typename wide<T>::type>
TROUPE_INLINE void fold(std::byte* out_bytes, std::byte* copy,
                        const std::byte* const* sources, int ranks,
                        std::size_t count, int divisor) {
  alignas(64) std::array<W, block> sum;
  alignas(64) std::array<W, block> next;
  for (std::size_t at = 0; at < count; at += block) {
    auto n = std::min(block, count - at);
    auto offset = at * sizeof(T);
    load(reinterpret_cast<const T*>(sources[0] + offset), sum.data(), n);
    for (int rank = 1; rank < ranks; ++rank) {
      auto* source = reinterpret_cast<const T*>(sources[rank] + offset);
      if constexpr (std::is_same_v<T, W>) {
        for (std::size_t i = 0; i < n; ++i)
          sum[i] = combine<Op>(sum[i], source[i]);
      } else {
        load(source, next.data(), n);
        for (std::size_t i = 0; i < n; ++i)
          sum[i] = combine<Op>(sum[i], next[i]);
      }
    }
    if (divisor > 1) {
      using D = std::conditional_t<std::is_floating_point_v<W>, W, int>;
      for (std::size_t i = 0; i < n; ++i)
        sum[i] = static_cast<W>(sum[i] / static_cast<D>(divisor));
    }
    store(sum.data(), reinterpret_cast<T*>(out_bytes + offset), n);
    if (copy)
      streaming_copy(copy + offset, out_bytes + offset, n * sizeof(T));
  }
}

template <class T>
TROUPE_INLINE void fold_numbers(reduction_op op, std::byte* out,
                                std::byte* copy,
                                const std::byte* const* sources, int ranks,
                                std::size_t count, int all) {
  switch (op) {
    case reduction_op::sum:
      return fold<T, reduction_op::sum>(out, copy, sources, ranks, count, 1);
    case reduction_op::average: {
      // A sum of integers may not fit into their type, their mean always does.
      using sum_type = std::conditional_t<std::is_integral_v<T>, std::int64_t,
                                          typename wide<T>::type>;
      return fold<T, reduction_op::sum, sum_type>(out, copy, sources, ranks,
                                                  count, all);
    }
    case reduction_op::product:
      return fold<T, reduction_op::product>(out, copy, sources, ranks, count,
                                            1);
    case reduction_op::min:
      return fold<T, reduction_op::min>(out, copy, sources, ranks, count, 1);
    case reduction_op::max:
      return fold<T, reduction_op::max>(out, copy, sources, ranks, count, 1);
    default:
      break;
  }
  if constexpr (std::is_integral_v<T>) {
    if (op == reduction_op::bit_and)
      return fold<T, reduction_op::bit_and>(out, copy, sources, ranks, count,
                                            1);
    if (op == reduction_op::bit_or)
      return fold<T, reduction_op::bit_or>(out, copy, sources, ranks, count, 1);
    return fold<T, reduction_op::bit_xor>(out, copy, sources, ranks, count, 1);
  }
}

#define TROUPE_FOLD(name, type)                                                \
  TROUPE_VECTOR_CLONES void name(                                              \
    reduction_op op, std::byte* out, std::byte* copy,                          \
    const std::byte* const* sources, int ranks, std::size_t count, int all) {  \
    fold_numbers<type>(op, out, copy, sources, ranks, count, all);             \
  }

TROUPE_FOLD(fold_float32, float)
TROUPE_FOLD(fold_float64, double)
TROUPE_FOLD(fold_float16, half)
TROUPE_FOLD(fold_bfloat16, brain)
TROUPE_FOLD(fold_int8, std::int8_t)
TROUPE_FOLD(fold_uint8, std::uint8_t)
TROUPE_FOLD(fold_int16, std::int16_t)
TROUPE_FOLD(fold_int32, std::int32_t)
TROUPE_FOLD(fold_int64, std::int64_t)

#undef TROUPE_FOLD

/// Booleans are bytes of 0 and 1.
reduction_op boolean_op(reduction_op op) {
  switch (op) {
    case reduction_op::sum:
    case reduction_op::max:
      return reduction_op::bit_or;
    case reduction_op::product:
    case reduction_op::min:
      return reduction_op::bit_and;
    default:
      return op;
  }
}

} // namespace

bool reduction::defined() const noexcept {
  switch (op) {
    case reduction_op::bit_and:
    case reduction_op::bit_or:
    case reduction_op::bit_xor:
      return type != element_type::float32 && type != element_type::float64
             && type != element_type::float16 && type != element_type::bfloat16;
    case reduction_op::average:
      return type != element_type::boolean;
    default:
      return true;
  }
}

void reduction::apply(std::byte* out, std::byte* copy,
                      const std::byte* const* sources, int ranks,
                      std::size_t count, int all) const noexcept {
  all = all == 0 ? ranks : all;
  switch (type) {
    case element_type::float32:
      return fold_float32(op, out, copy, sources, ranks, count, all);
    case element_type::float64:
      return fold_float64(op, out, copy, sources, ranks, count, all);
    case element_type::float16:
      return fold_float16(op, out, copy, sources, ranks, count, all);
    case element_type::bfloat16:
      return fold_bfloat16(op, out, copy, sources, ranks, count, all);
    case element_type::int8:
      return fold_int8(op, out, copy, sources, ranks, count, all);
    case element_type::uint8:
      return fold_uint8(op, out, copy, sources, ranks, count, all);
    case element_type::int16:
      return fold_int16(op, out, copy, sources, ranks, count, all);
    case element_type::int32:
      return fold_int32(op, out, copy, sources, ranks, count, all);
    case element_type::int64:
      return fold_int64(op, out, copy, sources, ranks, count, all);
    case element_type::boolean:
      return fold_uint8(boolean_op(op), out, copy, sources, ranks, count, all);
  }
}

} // namespace troupe::internal
