#include "troupe/runtime/process/process_identity.hpp"

#include <fstream>
#include <sstream>

#include <sys/utsname.h>
#include <unistd.h>

namespace troupe {

namespace {

std::string first_line_of(const char* path) {
  std::ifstream file{path};
  std::string line;
  std::getline(file, line);
  return line;
}

} // namespace

process_identity own_identity() {
  utsname host{};
  return {::uname(&host) == 0 ? host.nodename : "unknown",
          first_line_of("/proc/sys/kernel/random/boot_id"), ::getpid(),
          start_time_of("self").value_or("0")};
}

std::optional<std::string> start_time_of(const std::string& pid) {
  std::ifstream file{"/proc/" + pid + "/stat"};
  std::string line;
  if (!std::getline(file, line))
    return std::nullopt;
  // The second field, the name, is in parentheses and may hold anything; the
  // start time is field 22.
  auto at = line.rfind(')');
  for (int field = 2; field < 22 && at != std::string::npos; ++field)
    at = line.find(' ', at + 1);
  if (at == std::string::npos)
    return std::nullopt;
  return line.substr(at + 1, line.find(' ', at + 1) - at - 1);
}

std::string to_line(const process_identity& x) {
  return "pid " + std::to_string(x.pid) + " start " + x.start + " boot "
         + (x.boot.empty() ? "unknown" : x.boot) + " host " + x.host + '\n';
}

std::optional<process_identity> process_from_line(const std::string& text) {
  std::istringstream in{text};
  process_identity x;
  std::string pid, start, boot, host;
  if (!(in >> pid >> x.pid >> start >> x.start >> boot >> x.boot >> host
        >> x.host)
      || pid != "pid" || start != "start" || boot != "boot" || host != "host")
    return std::nullopt;
  if (x.boot == "unknown")
    x.boot.clear();
  return x;
}

std::string to_string(const process_identity& x) {
  return "pid " + std::to_string(x.pid) + " on " + x.host;
}

} // namespace troupe
