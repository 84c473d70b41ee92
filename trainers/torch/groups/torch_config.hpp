#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

namespace troupe {

/// How gradients travel.
enum class backend : std::uint8_t {
  /// NCCL if ranks have GPUs, `local` if all ranks share this host,
  /// `hierarchical` on several hosts.
  automatic,
  local, ///< Shared memory between the ranks of one host; CPU tensors only.
  gloo,  ///< TCP between processes or hosts.
  nccl,  ///< Needs GPUs and the `troupe_nccl` library.
  /// Shared memory inside each host, one connection per host between them; CPU
  /// tensors only.
  hierarchical,
};

std::string_view to_string(backend x) noexcept;

/// How the ranks of a torch run communicate.
struct torch_config {
  troupe::backend backend = troupe::backend::automatic;

  /// How long a collective waits for the slowest rank. Ray Train and torch wait
  /// as long with Gloo: a rank may load data or save for minutes. Must be
  /// positive; `std::chrono::milliseconds::max()` waits forever.
  std::chrono::milliseconds timeout = std::chrono::minutes{30};

  /// Whether what `hierarchical` sends between hosts is encrypted (TLS 1.3),
  /// which costs some speed. Gloo and NCCL always send in the clear.
  bool encrypt_gradients = true;
};

} // namespace troupe
