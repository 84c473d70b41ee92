#pragma once

#include <sys/file.h>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/process/unique_fd.hpp"

namespace troupe {

/// Takes the `flock` of *file*, which is open at *path*, without waiting; false
/// if another one is in the way.
expected<bool> lock_file(const unique_fd& file, const fs::path& path,
                         int how = LOCK_EX);

/// Gives back the `flock` of *file* and closes it. Closing alone leaves the
/// lock to a child that the user's program forked.
void unlock_file(unique_fd& file);

} // namespace troupe
