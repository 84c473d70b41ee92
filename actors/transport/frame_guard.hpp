#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace troupe::internal {

/// Judges the header of every frame before CAF's BASP sees it.
///
/// CAF itself allocates what an unchecked header announces. Here a connection
/// must start with the handshake of its direction, and no payload may exceed
/// its limit; anything else closes the connection.
class frame_guard {
public:
  /// Which end of the connection we are.
  enum class side { server, client };

  static constexpr std::size_t header_size = 32;

  /// A handshake carries a node id and the signatures of one interface.
  static constexpr std::uint32_t max_handshake = 64 * 1024;

  /// Room for the metrics of many ranks' reports (`max_metrics_bytes` each);
  /// bulk data never travels in messages. Buffers grow with the received data,
  /// so that no peer can make us allocate more than it has sent.
  static constexpr std::uint32_t max_payload = 64 * 1024 * 1024;

  explicit frame_guard(side s) noexcept : side_(s) {}

  /// The announced size of the payload that follows *header*.
  static std::uint32_t
  payload_length(std::span<const std::byte, header_size> header) noexcept;

  /// Why the frame that starts with *header* must not be read, or nothing.
  std::optional<std::string>
  check(std::span<const std::byte, header_size> header);

private:
  side side_;
  bool greeted_ = false;
};

} // namespace troupe::internal
