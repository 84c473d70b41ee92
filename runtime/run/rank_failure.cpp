#include "troupe/runtime/run/rank_failure.hpp"

#include <string.h>

namespace troupe {

namespace {

std::string with(std::string cause, const std::string& what) {
  return what.empty() ? cause : cause + ": " + what;
}

std::string signal_text(int signal) {
  auto name = sigabbrev_np(signal);
  auto result = "killed by signal " + std::to_string(signal);
  return name ? result + " (SIG" + name + ')' : result;
}

} // namespace

std::string to_string(const rank_failure& x) {
  switch (x.kind) {
    case rank_failure::kind_type::exception:
      return with("exception", x.what);
    case rank_failure::kind_type::exit_code:
      return with("exit(" + std::to_string(x.code) + ")", x.what);
    case rank_failure::kind_type::signal:
      return with(signal_text(x.code), x.what);
    case rank_failure::kind_type::thread_exception:
      return with("exception in a thread", x.what);
    case rank_failure::kind_type::lost:
      return with("lost", x.what);
    case rank_failure::kind_type::timeout:
      return with("timeout", x.what);
    case rank_failure::kind_type::start_failed:
      return with("did not start", x.what);
    case rank_failure::kind_type::misuse:
      return with("misuse", x.what);
  }
  return with("unknown cause", x.what);
}

} // namespace troupe
