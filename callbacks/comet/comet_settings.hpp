#pragma once

#include <string>

#include "troupe/callbacks/comet/comet.hpp"
#include "troupe/callbacks/tracking/tracked_run.hpp"

namespace troupe::internal {

/// The settings of one run, combined from options, train loop, variables and
/// Comet's file.
struct comet_settings {
  comet_mode mode = comet_mode::online;
  std::string api_key; ///< Empty: none was found.
  std::string workspace;
  std::string project;
  std::string name;
  std::string experiment_key; ///< 32 to 50 letters and digits.
  bool is_known = false;      ///< The experiment exists already.
  fs::path offline_directory;
  std::string url; ///< `https://www.comet.com`
};

/// `ec::invalid_config` for an experiment key that Comet does not accept, and
/// for online mode without an API key; the sentence names variable and file.
expected<comet_settings> make_comet_settings(const comet_options& options,
                                             const tracked_run& run);

} // namespace troupe::internal
