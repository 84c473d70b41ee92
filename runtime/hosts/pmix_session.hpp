#pragma once

#include <memory>
#include <optional>
#include <string>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/process/forked_process.hpp"

namespace troupe::internal {

/// What the processes that `mpirun` has started tell each other, over its PMIx
/// server: each entry is published once, under a name of its own, and stays
/// until all of them have ended.
///
/// `libpmix.so.2` is loaded when a session opens, so that a build of Troupe
/// needs none. The server of Open MPI sends entries between hosts unencrypted.
class pmix_session {
public:
  /// Connects to the server that the environment names. `ec::unsupported` if
  /// the library is missing, `ec::protocol` if the server refuses.
  static expected<std::unique_ptr<pmix_session>> open();

  pmix_session(const pmix_session&) = delete;
  pmix_session& operator=(const pmix_session&) = delete;

  /// The server takes a process for crashed that ends with its session open. In
  /// a process that was forked meanwhile, it stays open.
  ~pmix_session();

  /// How many hosts there are, this one included.
  expected<int> host_count() const;

  /// The number of this process among those of its host; 0 if the server does
  /// not know it.
  int local_rank() const;

  expected<void> publish(const std::string& name, const std::string& text);

  /// The text of *name*, which may be published later: waits for that without
  /// a limit. The server ends this process if another one fails that has opened
  /// a session.
  expected<std::string> wait_for(const std::string& name) const;

  /// The text of *name* if it is published already.
  expected<std::optional<std::string>> find(const std::string& name) const;

private:
  struct library;

  explicit pmix_session(std::unique_ptr<library> x);

  expected<std::optional<std::string>> look_up(const std::string& name,
                                               bool waits) const;

  std::unique_ptr<library> library_;
  owner_process owner_;
};

} // namespace troupe::internal
