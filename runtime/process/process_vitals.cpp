#include "troupe/runtime/process/process_vitals.hpp"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <charconv>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/process/unique_fd.hpp"

namespace troupe {

namespace {

/// Descendants that are looked at; a rank that starts more is busy anyway.
constexpr std::size_t max_processes = 64;

std::string proc_path(pid_t pid) {
  return "/proc/" + std::to_string(pid);
}

/// The first bytes of a file of /proc; empty if it cannot be read.
std::string text_of(const std::string& path) {
  unique_fd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  std::string text(4096, '\0');
  auto n = file.get() < 0 ? 0 : ::read(file.get(), text.data(), text.size());
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return text;
}

/// The number behind *name* in *text*; 0 if it is not there.
std::uint64_t number_behind(std::string_view text, std::string_view name) {
  auto begin = text.find(name);
  if (begin == std::string_view::npos)
    return 0;
  begin = text.find_first_of("0123456789", begin + name.size());
  std::uint64_t result = 0;
  if (begin != std::string_view::npos)
    std::from_chars(text.data() + begin, text.data() + text.size(), result);
  return result;
}

std::chrono::nanoseconds cpu_time_of(pid_t pid) {
  clockid_t clock{};
  timespec time{};
  if (::clock_getcpuclockid(pid, &clock) != 0
      || ::clock_gettime(clock, &time) != 0)
    return {};
  return std::chrono::seconds{time.tv_sec}
         + std::chrono::nanoseconds{time.tv_nsec};
}

std::uint64_t io_of(pid_t pid) {
  auto text = text_of(proc_path(pid) + "/io");
  return number_behind(text, "rchar:") + number_behind(text, "wchar:");
}

std::vector<std::string> tasks_of(pid_t pid) {
  std::vector<std::string> result;
  boost::system::error_code failed;
  for (fs::directory_iterator i{proc_path(pid) + "/task", failed}, end;
       !failed && i != end; i.increment(failed))
    result.push_back(i->path().string());
  return result;
}

/// State letter of a process or thread, see proc(5); '?' if it is gone.
char state_of(const std::string& task) {
  auto text = text_of(task + "/stat");
  auto name_end = text.rfind(')');
  return name_end == std::string::npos || name_end + 2 >= text.size()
           ? '?'
           : text[name_end + 2];
}

void add_children(const std::string& task, std::vector<pid_t>& result) {
  auto text = text_of(task + "/children");
  const char* at = text.data();
  const char* end = at + text.size();
  for (pid_t pid = 0; at < end; ++at) {
    auto read = std::from_chars(at, end, pid);
    if (read.ec != std::errc{} || result.size() >= max_processes)
      return;
    result.push_back(pid);
    at = read.ptr;
  }
}

} // namespace

bool is_stopped(pid_t pid) {
  return state_of(proc_path(pid)) == 'T';
}

std::optional<process_vitals> vitals_of(pid_t pid) {
  std::vector<pid_t> processes{pid};
  process_vitals result;
  for (std::size_t i = 0; i < processes.size(); ++i) {
    auto tasks = tasks_of(processes[i]);
    if (tasks.empty() && i == 0)
      return std::nullopt;
    result.cpu += cpu_time_of(processes[i]);
    result.io_bytes += io_of(processes[i]);
    result.wake_ups +=
      number_behind(text_of(proc_path(processes[i]) + "/status"),
                    "\nvoluntary_ctxt_switches:");
    std::size_t stopped = 0;
    for (auto& task : tasks) {
      auto state = state_of(task);
      stopped += state == 'T' ? 1 : 0;
      result.busy |= state == 'R' || state == 'D' || state == 't';
      add_children(task, processes);
    }
    if (i == 0)
      result.stopped = stopped == tasks.size();
  }
  return result;
}

} // namespace troupe
