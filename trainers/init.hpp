#pragma once

namespace troupe {

/// Prepares this program to start ranks. The first line of `main`: a program
/// with a single thread creates its spawner in a millisecond; later, the
/// program is executed again for it.
///
/// In a process that was started as a spawner it never returns. The first
/// `fit()` reports failures of this call.
void init(int argc, char** argv);

} // namespace troupe
