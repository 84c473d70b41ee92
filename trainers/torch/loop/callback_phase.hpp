#pragma once

namespace troupe {

/// When a callback's `on_train_epoch_end` is called.
enum class callback_phase {
  usual,      ///< Before the module's.
  monitor,    ///< After it, to see what the module logs there.
  checkpoint, ///< Last of all, to save what the others have become.
};

} // namespace troupe
