#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "troupe/actors/rank_launcher.hpp"
#include "troupe/runtime/process/cpu_plan.hpp"
#include "troupe/runtime/process/inheritance.hpp"
#include "troupe/runtime/process/log_tee.hpp"
#include "troupe/runtime/process/spawner_connection.hpp"
#include "troupe/runtime/store/ranks_lock.hpp"

namespace troupe::internal {

/// What a new rank process gets. Its descriptors are the shared segment, the
/// socket through which it asks the agent of its host for the rest, and the
/// file of its `ranks_ticket`, unless it opens that itself.
struct rank_bootstrap {
  std::uint64_t attempt = 0;
  int rank = 0;
  std::uint64_t token = 0; ///< Of its `ranks_ticket`.
  std::string run_path;    ///< Where it opens that; empty: it has the file.

  std::string to_bytes() const;
  static expected<rank_bootstrap> from_bytes(const std::string& bytes);
};

struct process_launcher_args {
  spawner_connection* spawner = nullptr;
  /// A socket through which a rank reaches the agent of this host.
  std::function<expected<unique_fd>()> new_connection;
  log_tee::sink console; ///< Gets what rank 0 prints, beside its log.
  /// What a rank joins the attempt with. Empty: ranks open it themselves, so
  /// that a storage that hangs does not hold the caller of `launch`.
  std::function<expected<ranks_ticket>()> ticket;
  /// The cores that ranks share; empty: all that this process may use.
  std::vector<int> cores;
  /// What ranks have from the program; never null.
  std::shared_ptr<const inheritance> inherited;
  /// How many such runs of this process use these cores at once.
  int runs_at_once = 1;
  /// Whether ranks have these very `cores`; otherwise as many of all.
  bool is_pinned = true;
};

/// Starts ranks as processes of this host.
class process_launcher : public rank_launcher {
public:
  explicit process_launcher(process_launcher_args args);

  void prepare(start_ranks& x) override;
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
  /// Position of *rank* among those of this host.
  std::size_t local(int rank) const {
    return static_cast<std::size_t>(rank - first_rank_);
  }

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
  int first_rank_ = 0;         ///< Of this host.
  std::uint64_t token_ = 0;    ///< Of the attempt.
  std::string run_path_;
  std::map<std::string, std::string> environment_;
  cpu_plan cpus_;
  std::vector<spawner_connection::process_id> ids_; ///< By local rank.
};

} // namespace troupe::internal
