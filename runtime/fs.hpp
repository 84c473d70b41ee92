#pragma once

#include <boost/filesystem.hpp>

namespace troupe {

/// Paths on storage. Every path in the public API is an `fs::path`.
namespace fs = boost::filesystem;

} // namespace troupe
