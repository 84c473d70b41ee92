#pragma once

#include <string>

namespace troupe {

/// How saved tensors are put into a model.
struct load_options {
  /// Names that are missing in the file or unknown to the model are errors.
  bool strict = true;
  /// Only names that begin with it count, and it is no part of their names in
  /// the model.
  std::string prefix;
};

} // namespace troupe
