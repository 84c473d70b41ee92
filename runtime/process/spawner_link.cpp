#include "troupe/runtime/process/spawner_link.hpp"

#include <cerrno>
#include <csignal>

#include <sys/wait.h>

#include "troupe/runtime/process/pidfd.hpp"
#include "troupe/runtime/process/process_exit.hpp"
#include "troupe/runtime/process/process_tree.hpp"

namespace troupe {
namespace {

/// How long what was killed may take to be gone. Only a process that waits for
/// a disk takes longer than milliseconds.
constexpr int kill_limit_ms = 2000;

} // namespace

std::string reap(const spawner_link& link, int timeout_ms) {
  if (!has_ended(link.process, timeout_ms))
    send_signal(link.process, SIGKILL);
  end_session(link.pid, std::chrono::milliseconds{kill_limit_ms});
  if (!has_ended(link.process, kill_limit_ms))
    return "was killed and does not end";
  siginfo_t info{};
  int rc = 0;
  do {
    rc =
      ::waitid(P_PIDFD, static_cast<id_t>(link.process.get()), &info, WEXITED);
  } while (rc != 0 && errno == EINTR);
  if (rc != 0) // The program waits for all its children itself.
    return "ended";
  auto how = info.si_code == CLD_EXITED ? process_exit::kind::exited
                                        : process_exit::kind::signaled;
  auto text = to_string(process_exit{how, info.si_status, {}});
  return how == process_exit::kind::signaled ? "was " + text : text;
}

} // namespace troupe
