#pragma once

#include <string>

#include "troupe/runtime/config/run_config.hpp"

namespace troupe::internal::bench {

/// The configuration of a run that shows nothing.
run_config quiet_run(const fs::path& storage, std::string name = "run");

/// A private folder on a real disk, removed at the end: below $TMPDIR, else
/// below build/, else here; in a memory file system only if there is nothing
/// else.
class workplace {
public:
  workplace();
  ~workplace();

  workplace(const workplace&) = delete;
  workplace& operator=(const workplace&) = delete;

  const fs::path& path() const noexcept { return path_; }

  /// A path in the folder that was not returned before.
  std::string new_path(const std::string& name);

  /// The configuration of a quiet run whose files are in the folder.
  run_config new_run();

private:
  fs::path path_;
  int given_out_ = 0;
};

} // namespace troupe::internal::bench
