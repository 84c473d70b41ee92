#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/callbacks/tracking/row_values.hpp"
#include "troupe/callbacks/tracking/tracker.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe {

enum class comet_mode : std::uint8_t {
  online,  ///< Sends to Comet over REST.
  offline, ///< Writes an archive for `comet upload`.
};

/// The names in saved options.
constexpr std::array<std::string_view, 2> option_names(comet_mode) {
  return {"online", "offline"};
}

/// How a run is shown in Comet. An empty option falls back to what the train
/// loop passed to `start_tracking`, then to Comet's own variable, which the
/// comment on the option names, then to the value in `~/.comet.config`.
struct comet_options {
  std::string workspace = {}; ///< COMET_WORKSPACE, else the key's default.
  std::string project = {};   ///< COMET_PROJECT_NAME, else `general`.
  std::string name = {};      ///< The run's name.
  std::vector<std::string> tags = {};
  /// An existing experiment to continue: COMET_EXPERIMENT_KEY, except for a
  /// trial of a sweep. Else a new one, with Troupe's id of the run as its key.
  std::string experiment_key = {};
  /// Unset: online if a key is found, else offline.
  std::optional<comet_mode> mode = {};
  /// COMET_OFFLINE_DIRECTORY, else `<run>/comet`.
  fs::path offline_directory = {};
  std::string url = {}; ///< COMET_URL_OVERRIDE, else Comet's cloud.

  /// Prefer COMET_API_KEY or ~/.comet.config, which every program reads. A key
  /// given here appears in no file and no message.
  std::string api_key = {};

  rank_values ranks = rank_values::first;
  troupe::non_finite non_finite = troupe::non_finite::send;

  /// Lists what is saved for `troupe sync`: all but the key.
  template <class Visitor>
  void visit(Visitor& option) {
    option.harmless("workspace", workspace);
    option.harmless("project", project);
    option.harmless("name", name);
    option.harmless("tags", tags);
    option.harmless("experiment_key", experiment_key);
    option.harmless("mode", mode);
    option("offline_directory", offline_directory);
    option("url", url);
    option.harmless("ranks", ranks);
    option.harmless("non_finite", non_finite);
  }
};

/// Shows the run in Comet. For `run_config::trackers`.
std::shared_ptr<tracker> comet_tracker(comet_options options = {},
                                       tracker_options tracking = {});

} // namespace troupe
