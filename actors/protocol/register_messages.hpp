#pragma once

namespace troupe {

/// Makes CAF know every message of ours. Before the first actor system of the
/// process; later calls do nothing.
void register_messages();

} // namespace troupe
