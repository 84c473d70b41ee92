#pragma once

#include <map>
#include <string>
#include <string_view>

namespace troupe {

/// Longest name that MLflow's servers take, in bytes here.
inline constexpr std::size_t max_mlflow_name = 250;

/// *name* as MLflow allows it: letters, digits, `_`, `-`, `.`, `:`, `/` and
/// blanks, in the form of a plain relative path; everything else becomes `_`.
/// Cut to `max_mlflow_name` bytes.
std::string clean_mlflow_name(std::string_view name);

/// *name* as relative path of an artifact: no part of it leads elsewhere, and
/// `#`, `%`, backslashes and control characters, which servers refuse, become
/// `_`.
std::string artifact_path(std::string_view name);

/// `_` and eight hex digits that tell *name* from others; the same in every
/// process.
std::string mlflow_name_mark(std::string_view name);

/// Gives every name one that MLflow allows, and never the same to two.
class mlflow_names {
public:
  using map_type = std::map<std::string, std::string>;

  mlflow_names() = default;

  /// With the names that were changed before, in another process.
  explicit mlflow_names(map_type changed);

  /// The name for *name*: its own if it may have that and no one else does.
  std::string operator()(const std::string& name);

  /// The names that could not stay as they were, with what they became.
  const map_type& changed() const noexcept { return changed_; }

private:
  map_type changed_;
  std::map<std::string, std::string> owner_; ///< By the name given.
};

} // namespace troupe
