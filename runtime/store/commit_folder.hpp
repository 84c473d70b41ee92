#pragma once

#include <functional>

#include "troupe/runtime/checkpoint/manifest.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/report/report.hpp"
#include "troupe/runtime/storage/held_folder.hpp"

namespace troupe::internal {

/// Makes the files that ranks staged for *batch* in the run's *checkpoints* the
/// folder `<name>` there: whole, described by *x*, durable, in one rename (N1,
/// N2). *x* lacks only its files. *check*, if set, is asked right before the
/// rename: gathering the files may have taken long.
///
/// An error leaves no such folder, or the whole checkpoint where only its
/// durability is in doubt. The staging folder is removed in any case: other
/// files of a failed commit are lost, and their space is free.
expected<void> commit_folder(const held_folder& checkpoints,
                             const report_batch& batch, manifest x,
                             const std::function<expected<void>()>& check = {});

} // namespace troupe::internal
