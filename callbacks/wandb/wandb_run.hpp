#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "troupe/callbacks/wandb/wandb_item.hpp"

namespace troupe {

/// What one log file says about its run before the first row.
struct wandb_run {
  using clock = std::chrono::system_clock;

  std::string id;
  std::string project;
  std::string entity;
  std::string name;
  std::string group;
  std::string job_type;
  std::string notes;
  std::vector<std::string> tags;
  std::string host;
  clock::time_point start_time; ///< Of this file.
  /// Ask the service how far the run has come and go on there: for all files of
  /// a run but the first, which begins at the service's row 0.
  bool resume = false;
  std::vector<wandb_item> config;
};

/// Where it runs.
struct wandb_environment {
  std::string os;
  std::string program;
  std::string host;
  std::string user;
  unsigned cpus = 0;
  std::uint64_t memory = 0; ///< Bytes.
};

} // namespace troupe
