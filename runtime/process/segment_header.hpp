#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace troupe {

/// The first page of a `shared_segment`.
struct segment_header {
  static constexpr std::uint64_t expected_magic = 0x7472'6f75'7065'7367;
  static constexpr std::uint32_t expected_version = 4;

  std::uint64_t magic;
  std::uint32_t version;
  std::int32_t ranks;

  /// The attempt that the segment serves.
  std::uint64_t attempt;
  std::uint32_t run_id_length;
  std::array<char, 128> run_id;

  /// Not 0: every wait ends.
  alignas(64) std::atomic<std::uint32_t> aborted;

  /// 0: none, 1: being written, 2: written.
  std::atomic<std::uint32_t> reason;
  std::uint32_t reason_code;
  std::uint32_t reason_length;
  std::array<char, 496> reason_text;
};

} // namespace troupe
