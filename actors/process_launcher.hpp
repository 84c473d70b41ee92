#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/actors/rank_launcher.hpp"
#include "troupe/runtime/process/cpu_plan.hpp"
#include "troupe/runtime/process/log_tee.hpp"
#include "troupe/runtime/process/spawner_connection.hpp"
#include "troupe/runtime/store/ranks_lock.hpp"

namespace troupe::internal {

/// What a new rank process gets. Its descriptors are the shared segment, the
/// socket through which it asks the agent of its host for the rest, and the
/// file of its `ranks_ticket`.
struct rank_bootstrap {
  std::uint64_t attempt = 0;
  int rank = 0;
  std::uint64_t token = 0; ///< Of its `ranks_ticket`.

  std::string to_bytes() const;
  static expected<rank_bootstrap> from_bytes(const std::string& bytes);
};

struct process_launcher_args {
  spawner_connection* spawner = nullptr;
  /// A socket through which a rank reaches the agent of this host.
  std::function<expected<unique_fd>()> new_connection;
  std::string log_path; ///< Folder of `rank_<r>.log`.
  cpu_plan cpus;
  std::map<std::string, std::string> environment; ///< What ranks get beside it.
  log_tee::sink console; ///< Gets what rank 0 prints, beside its log.
  /// What a rank joins its attempt with.
  std::function<expected<ranks_ticket>()> ticket;
};

/// Starts ranks as processes of this host.
class process_launcher : public rank_launcher {
public:
  explicit process_launcher(process_launcher_args args);

  void launch(std::uint64_t attempt, int rank, int segment,
              const listener& tell) override;
  void kill(int rank) override;
  bool has_ended(int rank) override;
  std::optional<process_vitals> vitals(int rank) override;
  bool is_stopped(int rank) override;
  bool show_stacks(int rank) override;
  void drain() override { tee_.reset(); }

private:
  expected<spawn_request> request_for(std::uint64_t attempt, int rank,
                                      int segment);
  expected<void> open_log(int rank, spawn_request& request);
  /// Process of *rank*; 0 if it has none yet.
  pid_t pid_of(int rank) const;

  struct last_process {
    std::uint64_t attempt = 0;
    pid_t pid = 0; ///< 0: it has ended.
  };

  /// Filled and emptied by the threads that process events arrive on.
  struct process_table {
    std::mutex mutex;
    std::map<int, last_process> of_rank;
  };

  process_launcher_args args_;
  std::shared_ptr<process_table> pids_ = std::make_shared<process_table>();
  std::optional<log_tee> tee_; ///< Of rank 0, for all attempts.
  std::vector<spawner_connection::process_id> ids_; ///< By rank.
};

} // namespace troupe::internal
