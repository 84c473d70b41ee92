#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "troupe/runtime/store/run_store.hpp"

namespace troupe::internal::test {

/// Stores *batch* as a driver does: commits its checkpoint if it has one, then
/// appends it to the journal.
inline expected<std::optional<kept_checkpoint>>
store_batch(run_store& store, std::uint64_t attempt,
            const report_batch& batch) {
  std::optional<kept_checkpoint> result;
  auto begin = std::chrono::steady_clock::now();
  if (batch.checkpoint_name()) {
    TROUPE_TRY(auto committed, store.commit(attempt, batch));
    result = std::move(committed);
  }
  std::chrono::duration<double> spent =
    std::chrono::steady_clock::now() - begin;
  TROUPE_TRY_VOID(store.append(attempt, batch,
                               result ? result->data.name() : std::string{},
                               spent.count()));
  return result;
}

} // namespace troupe::internal::test
