#pragma once

#include <optional>
#include <string>
#include <vector>

#include "troupe/callbacks/wandb/child_program.hpp"
#include "troupe/callbacks/wandb/wandb_fragment.hpp"
#include "troupe/callbacks/wandb/wandb_options.hpp"

namespace troupe {

/// Lets the user's own W&B client upload a run's folders: while they are
/// written, and at the end those that are left. Credentials reach the client by
/// its environment and its files alone.
class wandb_upload {
public:
  explicit wandb_upload(const wandb_options& options) : options_(options) {}

  /// Why nothing can be uploaded here, with the command to run elsewhere; an
  /// empty text: it can.
  std::string obstacle(const std::vector<wandb_fragment>& fragments) const;

  /// Follows *fragments*, of which only the last one is still written to. A
  /// failure is no loss: `finish` sends what this left.
  void follow(const std::vector<wandb_fragment>& fragments);

  /// Uploads *fragments*, which have ended; `ec::timeout`, `ec::stopped` or
  /// what the client printed last if some are left.
  expected<void> finish(const std::vector<wandb_fragment>& fragments,
                        const std::stop_token& stop);

  /// The command that uploads *fragments*.
  static std::string command_for(const std::vector<wandb_fragment>& fragments);

private:
  expected<child_program> start(const std::vector<std::string>& words,
                                const std::vector<wandb_fragment>& fragments);

  wandb_options options_;
  std::optional<child_program> follower_;
};

} // namespace troupe
