#include "troupe/runtime/process/spawner_link.hpp"

#include <cerrno>
#include <csignal>

#include <poll.h>
#include <sys/wait.h>

#include "troupe/runtime/process/pidfd.hpp"
#include "troupe/runtime/process/process_exit.hpp"

namespace troupe {

std::string bury(const spawner_link& link, int timeout_ms) {
  pollfd wait{link.process.get(), POLLIN, 0};
  while (::poll(&wait, 1, timeout_ms) < 0 && errno == EINTR)
    continue;
  if (wait.revents == 0)
    send_signal(link.process, SIGKILL);
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
