#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "troupe/callbacks/tracking/row_values.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe {

enum class comet_mode : std::uint8_t {
  online,  ///< Over REST.
  offline, ///< An archive that `comet upload` takes.
};

/// How a run is shown in Comet. What is left empty comes from what the train
/// loop gave to `start_tracking`, then from Comet's own variables, whose names
/// stand behind each, then from `~/.comet.config`.
struct comet_options {
  std::string workspace = {}; ///< COMET_WORKSPACE, else the key's own.
  std::string project = {};   ///< COMET_PROJECT_NAME, else `general`.
  std::string name = {};      ///< Else the run's.
  std::vector<std::string> tags = {};
  /// An experiment to go on with; COMET_EXPERIMENT_KEY, else Troupe's id.
  std::string experiment_key = {};
  /// Online if a key is found, else offline.
  std::optional<comet_mode> mode = {};
  fs::path offline_directory =
    {};                 ///< COMET_OFFLINE_DIRECTORY, else `<run>/comet`.
  std::string url = {}; ///< COMET_URL_OVERRIDE, else Comet's cloud.

  /// Better left empty: COMET_API_KEY and ~/.comet.config do for every program.
  /// Is in no file and no message.
  std::string api_key = {};

  rank_values ranks = rank_values::first;
  non_finite when_non_finite = non_finite::send;
};

} // namespace troupe
