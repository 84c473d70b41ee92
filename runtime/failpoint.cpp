#include "troupe/runtime/failpoint.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

#include "troupe/runtime/text.hpp"
#include "troupe/runtime/whole_number.hpp"

namespace troupe::internal {

#if TROUPE_FAILPOINTS

namespace {

enum class action { kill, exit, eio, enospc };

struct armed_failpoint {
  std::string name;
  int passes = 1;       // left until the action
  bool lasting = false; // also at every pass after it
  action what = action::kill;
};

struct failpoint_plan {
  const char* const log = std::getenv("TROUPE_FAILPOINT_LOG");
  std::mutex mutex;
  std::vector<armed_failpoint> armed;
};

failpoint_plan& plan() {
  static failpoint_plan instance;
  return instance;
}

// Reads the variable before main. An unusable value ends the process: a fault
// test that injects no fault would prove nothing.
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

expected<armed_failpoint> parse_failpoint(const std::string& spec) {
  armed_failpoint result;
  auto equals = spec.find('=');
  result.name = spec.substr(0, equals);
  if (equals != std::string::npos) {
    TROUPE_TRY(auto what, parse_action(spec.substr(equals + 1)));
    result.what = what;
  }
  auto colon = result.name.find(':');
  if (colon == std::string::npos)
    return result;
  result.lasting = result.name.ends_with('+');
  auto count = std::string_view{result.name}.substr(colon + 1);
  count.remove_suffix(result.lasting);
  result.passes = whole_number<int>(count).value_or(0);
  if (result.passes < 1)
    return failure(ec::invalid_argument,
                   "the failpoint '" + spec + "' has no count >= 1 after ':'");
  result.name.resize(colon);
  return result;
}

// Before the action, which may be the end.
void log_action(const char* name) {
  if (!plan().log)
    return;
  auto line = concat(::getpid(), ' ', name, '\n');
  auto file =
    ::open(plan().log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0)
    return;
  (void) !::write(file, line.data(), line.size());
  ::close(file);
}

int act(action what) {
  switch (what) {
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

} // namespace

std::atomic<bool> failpoints_armed = false;

int hit_failpoint(const char* name) {
  auto& all = plan();
  std::lock_guard guard{all.mutex};
  for (auto& x : all.armed) {
    if (x.name != name || x.passes <= 0)
      continue;
    if (x.passes > 1) {
      --x.passes;
    } else if (x.lasting || std::exchange(x.passes, 0) == 1) {
      log_action(name);
      return act(x.what);
    }
  }
  return 0;
}

expected<void> arm_failpoint(const std::string& specs) {
  std::vector<armed_failpoint> all;
  for (std::size_t begin = 0; begin < specs.size();) {
    auto end = std::min(specs.find(',', begin), specs.size());
    TROUPE_TRY(auto one, parse_failpoint(specs.substr(begin, end - begin)));
    all.push_back(std::move(one));
    begin = end + 1;
  }
  auto& armed = plan();
  std::lock_guard guard{armed.mutex};
  armed.armed = std::move(all);
  failpoints_armed = !armed.armed.empty();
  return {};
}

#else

expected<void> arm_failpoint(const std::string& spec) {
  return failure(ec::unsupported, "this build has no failpoint '" + spec
                                    + "': configure with TROUPE_FAILPOINTS=ON");
}

#endif

} // namespace troupe::internal
