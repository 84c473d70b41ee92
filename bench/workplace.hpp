#pragma once

#include <string>

#include "troupe/runtime/config/run_config.hpp"

namespace troupe::bench {

/// A private folder on a real disk, gone at the end: below $TMPDIR, else below
/// build/, else here; a file system in memory only if there is nothing else.
class workplace {
public:
  workplace();
  ~workplace();

  workplace(const workplace&) = delete;
  workplace& operator=(const workplace&) = delete;

  const fs::path& path() const noexcept { return path_; }

  /// A path in the folder that was not given out before.
  std::string new_path(const std::string& name);

  /// The configuration of a quiet run whose files lie here.
  run_config new_run();

private:
  fs::path path_;
  int given_out_ = 0;
};

} // namespace troupe::bench
