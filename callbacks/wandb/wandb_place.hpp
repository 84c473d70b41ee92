#pragma once

#include <cstdint>
#include <string>

#include "troupe/callbacks/wandb/wandb_steps.hpp"
#include "troupe/runtime/error.hpp"

namespace troupe {

/// What a life of the W&B sink leaves to the next: its state, as JSON.
struct wandb_place {
  std::string fragment;   ///< Name of the newest folder; empty: none yet.
  std::uint64_t size = 0; ///< Bytes of its log that are confirmed.
  bool closed = false;    ///< Its log has its exit record ...
  bool ended = false;     ///< ... which says how the run ended.
  wandb_steps steps;
  std::uint64_t console = 0; ///< Bytes of rank 0's log that were shown.

  bool operator==(const wandb_place&) const = default;
};

std::string to_json(const wandb_place& x);

/// An empty text is an empty place.
expected<wandb_place> wandb_place_from_json(const std::string& text);

} // namespace troupe
