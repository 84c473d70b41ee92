#pragma once

namespace troupe {

/// Readies this program to start ranks. The first line of `main`: a program
/// with a single thread makes its spawner in a millisecond, later ones start
/// themselves once more for it.
///
/// In a process that was started as a spawner it never returns. What goes wrong
/// here is told by the first `fit()`.
void init(int argc, char** argv);

} // namespace troupe
