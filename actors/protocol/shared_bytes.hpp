#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "troupe/runtime/each_field.hpp"

namespace caf {

class binary_deserializer;
class binary_serializer;

} // namespace caf

namespace troupe {

namespace internal {
class bytes_block;
} // namespace internal

/// Bytes that never change, for messages: a tensor, a batch. Copies share them.
/// To a rank on the driver's host they travel in memory that both processes
/// map, not through the socket, so that they may be of any size.
class shared_bytes {
public:
  shared_bytes() = default;

  /// A copy of *bytes*.
  static shared_bytes copy_of(std::span<const std::byte> bytes);

  const std::byte* data() const noexcept;
  std::size_t size() const noexcept;
  std::span<const std::byte> bytes() const noexcept { return {data(), size()}; }

  // -- how they travel
  bool save(caf::binary_serializer& sink) const;
  bool load(caf::binary_deserializer& source);

private:
  std::shared_ptr<internal::bytes_block> block_; // null: empty
};

template <class Inspector>
bool inspect(Inspector& f, shared_bytes& x) {
  if constexpr (std::is_same_v<Inspector, caf::binary_serializer>) {
    return x.save(f);
  } else if constexpr (std::is_same_v<Inspector, caf::binary_deserializer>) {
    return x.load(f);
  } else { // Human-readable: the size only.
    auto size = static_cast<std::uint64_t>(x.size());
    return f.object(x).fields(f.field("size", size));
  }
}

/// A tensor for messages, alone or as a field: `to_message` and `to_tensor` of
/// `troupe/torch.hpp` convert. Copies share its elements.
struct tensor_message {
  std::uint8_t type = 0; ///< LibTorch's `c10::ScalarType`.
  std::vector<std::int64_t> sizes;
  shared_bytes elements; ///< In row-major order.
};

TROUPE_INSPECT(tensor_message, type, sizes, elements)

namespace internal {

/// While a copy exists, memory that another process can map keeps its
/// descriptor.
using shared_hold = std::shared_ptr<void>;

/// While one exists, `shared_bytes` that this thread saves go to a process of
/// this host, which can map their memory: as long as someone holds that.
class near_scope {
public:
  /// *holds*: receives a hold on what is saved; null: others have one, or it
  /// travels with the message.
  explicit near_scope(bool is_near,
                      std::vector<shared_hold>* holds = nullptr) noexcept;
  ~near_scope();

  near_scope(const near_scope&) = delete;
  near_scope& operator=(const near_scope&) = delete;

  /// The innermost one of this thread; nullptr: there is none.
  static near_scope* current() noexcept;

  bool is_near() const noexcept { return is_near_; }
  std::vector<shared_hold>* holds() const noexcept { return holds_; }

private:
  near_scope* outer_;
  bool is_near_;
  std::vector<shared_hold>* holds_;
};

} // namespace internal

} // namespace troupe
