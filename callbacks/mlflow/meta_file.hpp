#pragma once

#include <map>
#include <string>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe {

/// The texts of a `meta.yaml` by name, as MLflow's file store has it: one
/// `name: value` a line. Empty where there is no such file.
std::map<std::string, std::string> read_meta(const fs::path& path);

/// *text* as a YAML scalar that reads back as the same text.
std::string yaml_text(const std::string& text);

} // namespace troupe
