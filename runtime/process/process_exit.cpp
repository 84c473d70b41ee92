#include "troupe/runtime/process/process_exit.hpp"

#include <cstring>

#include <sys/wait.h>

namespace troupe {

process_exit process_exit_of(int wait_status, std::string last_words) {
  if (WIFSIGNALED(wait_status))
    return {process_exit::kind::signaled, WTERMSIG(wait_status),
            std::move(last_words)};
  return {process_exit::kind::exited, WEXITSTATUS(wait_status),
          std::move(last_words)};
}

std::string to_string(const process_exit& x) {
  if (!x.last_words.empty())
    return x.last_words;
  switch (x.how) {
    case process_exit::kind::exited:
      return "exited with code " + std::to_string(x.code);
    case process_exit::kind::signaled: {
      auto result = "killed by signal " + std::to_string(x.code);
      if (auto* name = ::sigabbrev_np(x.code))
        result += std::string{" (SIG"} + name + ")";
      return result;
    }
    case process_exit::kind::lost:
      break;
  }
  return "ended with its spawner";
}

} // namespace troupe
