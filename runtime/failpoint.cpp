#include "troupe/runtime/failpoint.hpp"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <mutex>

namespace troupe {

namespace {

enum class action { kill, exit, eio, enospc };

struct failpoint_plan {
  std::mutex mutex;
  std::string name;
  int passes = 1; // left until the action
  action what = action::kill;
};

failpoint_plan& plan() {
  static failpoint_plan instance;
  return instance;
}

// Reads the variable before main. An unusable value ends the process: a fault
// test that injects no fault would pass for nothing.
[[maybe_unused]] const bool read_environment = [] {
  auto spec = std::getenv("TROUPE_FAILPOINT");
  if (spec && !arm_failpoint(spec))
    std::abort();
  return spec != nullptr;
}();

expected<action> parse_action(const std::string& x) {
  if (x == "kill")
    return action::kill;
  if (x == "exit")
    return action::exit;
  if (x == "eio")
    return action::eio;
  if (x == "enospc")
    return action::enospc;
  return failure(ec::invalid_argument, "no failpoint action is called '" + x
                                         + "'; there are kill, exit, eio, "
                                           "enospc");
}

} // namespace

namespace detail {

std::atomic<bool> failpoints_armed = false;

int hit_failpoint(const char* name) {
  auto& armed = plan();
  std::lock_guard guard{armed.mutex};
  if (armed.name != name || armed.passes <= 0 || --armed.passes > 0)
    return 0;
  switch (armed.what) {
    case action::kill:
      kill(getpid(), SIGKILL);
      [[fallthrough]];
    case action::exit:
      _exit(134);
    case action::eio:
      return EIO;
    case action::enospc:
      return ENOSPC;
  }
  return 0;
}

} // namespace detail

expected<void> arm_failpoint(const std::string& spec) {
  auto equals = spec.find('=');
  auto head = spec.substr(0, equals);
  auto what = expected<action>{action::kill};
  if (equals != std::string::npos)
    what = parse_action(spec.substr(equals + 1));
  if (!what)
    return tl::unexpected{what.error()};
  auto passes = 1;
  if (auto colon = head.find(':'); colon != std::string::npos) {
    auto first = head.data() + colon + 1;
    auto last = head.data() + head.size();
    if (std::from_chars(first, last, passes).ptr != last || passes < 1)
      return failure(ec::invalid_argument, "the failpoint '" + spec
                                             + "' has no count >= 1 after ':'");
    head.resize(colon);
  }
  auto& armed = plan();
  std::lock_guard guard{armed.mutex};
  armed.name = head;
  armed.passes = passes;
  armed.what = *what;
  detail::failpoints_armed = !head.empty();
  return {};
}

} // namespace troupe
