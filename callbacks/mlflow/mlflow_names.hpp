#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "troupe/runtime/metrics/metrics.hpp"

namespace troupe::internal {

// Names and values in the form that MLflow accepts.

/// Longest values that servers of all versions store completely, in bytes.
inline constexpr std::size_t max_mlflow_param = 6000;
inline constexpr std::size_t max_mlflow_tag = 5000;

/// Longest name that MLflow's servers accept, in bytes.
inline constexpr std::size_t max_mlflow_name = 250;

/// The value of a param or a tag: numbers exactly, `nan`, `inf`, `-inf`,
/// `true`, `false`, texts as UTF-8.
std::string mlflow_text(const metric_value& x);

/// *text* if it has at most *limit* bytes, else its beginning, cut between two
/// characters, and "... [cut]"; together at most *limit* bytes.
std::string cut_mlflow_text(const std::string& text, std::size_t limit);

/// *name* in the form that MLflow accepts: letters, digits, `_`, `-`, `.`, `:`,
/// `/` and blanks, as a plain relative path; everything else becomes `_`. At
/// most `max_mlflow_name` bytes.
std::string clean_mlflow_name(std::string_view name);

/// *name* as relative path of an artifact: no part of it leads elsewhere, and
/// `#`, `%`, backslashes and control characters, which servers refuse, become
/// `_`.
std::string artifact_path(std::string_view name);

/// `_` and eight hex digits that distinguish *name* from others; the same in
/// every process.
std::string mlflow_name_mark(std::string_view name);

/// Maps every name to one that MLflow accepts, and no two names to the same
/// one.
class mlflow_names {
public:
  using map_type = std::map<std::string, std::string>;

  mlflow_names() = default;

  /// *changed* are the names changed before, in another process.
  explicit mlflow_names(map_type changed);

  /// Returns the MLflow name of *name*: unchanged if it is valid and not taken.
  std::string operator()(const std::string& name);

  /// The names that had to be changed, with their MLflow names.
  const map_type& changed() const noexcept { return changed_; }

private:
  map_type changed_;
  std::map<std::string, std::string> owner_; ///< By MLflow name.
};

} // namespace troupe::internal
