#pragma once

#include <vector>

#include "tools/troupe/verbs.hpp"

// What is made from the description of the command line: the man page and the
// completion.

namespace troupe::tool {

std::vector<verb> all_verbs();

/// Adds the verbs `man` and `completion` to the complete *app*.
void add_manual(CLI::App& app, action& todo);

} // namespace troupe::tool
