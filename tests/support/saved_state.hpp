#pragma once

#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/store/checkpoint_store.hpp"
#include "troupe/runtime/store/saved_run.hpp"

namespace troupe::internal::test {

/// Replaces `state.json` in *run_path*.
inline expected<void> save_run(const saved_run& x, const fs::path& run_path) {
  return replace_file(run_path / "state.json", to_json(x));
}

/// For `checkpoint_store::open` of a run that nothing else holds.
inline checkpoint_store::save_function saves_in(const fs::path& run_path) {
  return [run_path](const saved_run& x) { return save_run(x, run_path); };
}

} // namespace troupe::internal::test
