#pragma once

#include <string>

#include "troupe/runtime/process/unique_fd.hpp"

namespace troupe {

/// Opens *name* in the folder *above* (`AT_FDCWD`: the path *name*) with
/// *flags*, as a file that Troupe writes: never through a symbolic link, never
/// waiting for a pipe, and made with mode 0600.
///
/// Fails with *code* and "<what>: <reason>"; what is not a file is a reason,
/// too.
expected<unique_fd> open_own_file(int above, const char* name, int flags,
                                  ec code, std::string what);

} // namespace troupe
