#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/hosts/environment_map.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal {

/// Keys and values that the tasks of `srun --mpi=pmi2` share, over the socket
/// that Slurm gives each of them. Speaks PMI-2 itself: no library is needed.
///
/// Calls block the caller for at most the given limit. After a failure other
/// than that of a missing key, the connection is of no use.
class pmi2_client {
public:
  using duration = std::chrono::milliseconds;

  /// Longest key, in bytes; letters, digits, dots, hyphens and underscores.
  static constexpr std::size_t max_key = 40;

  /// Longest value, in bytes. The limit of PMI-2 itself is 1,024 bytes of text;
  /// longer values travel in parts.
  static constexpr std::size_t max_value = std::size_t{16} * 1024;

  /// Takes over the socket that `PMI_FD` in *variables* names, and introduces
  /// this task. `ec::unsupported` if there is none, `ec::protocol` if its other
  /// end does not speak PMI-2.
  static expected<pmi2_client> connect(const environment_map& variables,
                                       duration limit);

  int rank() const noexcept { return rank_; }

  /// How many tasks there are.
  int size() const noexcept { return size_; }

  /// Stores *value*, any bytes, for the other tasks: they see it after a
  /// `fence`.
  expected<void> put(std::string_view key, std::string_view value,
                     duration limit);

  /// Waits until every task has called it.
  expected<void> fence(duration limit);

  /// `ec::invalid_argument` if there is no such key.
  expected<std::string> get(std::string_view key, duration limit);

  /// Says goodbye. Without it Slurm takes the end of the task for a failure.
  expected<void> finalize(duration limit);

private:
  using fields = std::map<std::string, std::string, std::less<>>;
  using time_point = std::chrono::steady_clock::time_point;

  explicit pmi2_client(unique_fd socket) : socket_(std::move(socket)) {}

  expected<void> introduce(const environment_map& variables, time_point until);
  expected<fields> call(std::string_view command, std::string body,
                        time_point until);
  expected<void> put_text(std::string_view key, std::string_view text,
                          time_point until);
  expected<std::string> get_text(std::string_view key, time_point until);
  expected<void> send(std::string_view bytes, time_point until);
  expected<std::string> receive(std::size_t size, time_point until);
  expected<void> wait(short events, time_point until) const;

  unique_fd socket_;
  std::string job_;
  int rank_ = 0;
  int size_ = 0;
};

} // namespace troupe::internal
