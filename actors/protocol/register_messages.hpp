#pragma once

namespace troupe {

/// Registers all messages with CAF. Call it before the first actor system of
/// the process; later calls do nothing.
void register_messages();

} // namespace troupe
