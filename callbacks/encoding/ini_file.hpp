#pragma once

#include <map>
#include <string>

#include "troupe/runtime/fs.hpp"

namespace troupe {

/// The values of `[section]` in the file *path*, by name in lower case; `#` and
/// `;` begin comments on lines of their own. Nothing where there is no such
/// file or section.
std::map<std::string, std::string> ini_section(const fs::path& path,
                                               const std::string& section);

} // namespace troupe
