#pragma once

#include <boost/filesystem.hpp>
#include <boost/filesystem/fstream.hpp>

namespace troupe {

/// Paths on storage. Every path in the public API is an `fs::path`,
/// which `fs::ifstream` and `fs::ofstream` open.
namespace fs = boost::filesystem;

} // namespace troupe
