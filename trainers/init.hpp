#pragma once

namespace troupe {

/// Prepares this program to start ranks. The first line of `main`: a program
/// with a single thread creates its spawner in a millisecond; later, the
/// program is executed again for it.
///
/// In a process that was started as a spawner it never returns. The first
/// `fit()` reports failures of this call.
///
/// Finds out which hosts the program may use: those of `--hosts LIST`, or the
/// nodes of a job of Slurm; prints that in one line. Of the tasks that `srun`
/// has started only the first one returns; the others end with 0.
///
/// With the argument `--node-agent` it never returns either: the process has
/// the ranks of its host for a driver elsewhere, until that ends. It reads its
/// ticket from the file that `TROUPE_TICKET` names, or from standard input.
void init(int argc, char** argv);

} // namespace troupe
