#include "troupe/runtime/process/processes.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>

#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/whole_number.hpp"

namespace troupe::internal {

namespace {

std::string first_line_of(const char* path) {
  std::ifstream file{path};
  std::string line;
  std::getline(file, line);
  return line;
}

struct status_fields {
  char state = '?';
  std::string start; ///< In clock ticks since boot.
};

/// Nothing if there is no process *pid*.
std::optional<status_fields> status_fields_of(const std::string& pid) {
  auto line = first_line_of(("/proc/" + pid + "/stat").c_str());
  // The second field, the name, is in parentheses and may hold anything; the
  // state follows it, and the start time is field 22.
  auto at = line.rfind(')');
  if (at == line.npos)
    return std::nullopt;
  std::istringstream rest{line.substr(at + 1)};
  status_fields result;
  if (!(rest >> result.state))
    return std::nullopt;
  for (int field = 4; field <= 22; ++field)
    if (!(rest >> result.start))
      return std::nullopt;
  return result;
}

} // namespace

std::string own_host_name() {
  utsname host{};
  return ::uname(&host) == 0 ? host.nodename : "unknown";
}

process_identity own_identity() {
  auto me = status_fields_of("self");
  return {own_host_name(), first_line_of("/proc/sys/kernel/random/boot_id"),
          ::getpid(), me ? me->start : "0"};
}

std::uint64_t random_bits() {
  std::random_device random;
  return std::uint64_t{random()} << 32 | random();
}

bool is_alive(const process_identity& x) {
  auto found = status_fields_of(std::to_string(x.pid));
  return found && found->start == x.start && found->state != 'Z';
}

std::string to_line(const process_identity& x) {
  return concat("pid ", x.pid, " start ", x.start, " boot ",
                (x.boot.empty() ? "unknown" : x.boot), " host ", x.host, '\n');
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
  return concat("pid ", x.pid, " on ", x.host);
}

namespace {

struct process_relations {
  char state = '?';
  pid_t parent = 0;
  pid_t group = 0;
  pid_t session = 0;
};

/// In which way a process has a file open.
struct opening {
  off_t offset = 0;
  bool has_lock = false; ///< A shared `flock`.
};

/// Signatures are beyond what any reader reads, and within the offsets that
/// every file system accepts.
constexpr off_t first_signature = off_t{1} << 30;
constexpr off_t max_pid = off_t{1} << 22;

/// Whether a process other than *pid* signed *x*, and locked it.
bool is_inherited(const opening& x, pid_t pid) {
  auto signer = x.offset - first_signature;
  return x.has_lock && signer > 0 && signer <= max_pid && signer != pid;
}

std::string process_path(pid_t pid, const char* name) {
  return concat("/proc/", pid, name);
}

/// Inspects processes, and notes why one could not be inspected.
class process_observer {
public:
  /// The first such reason, an `errno`; 0: none.
  int blind() const noexcept { return blind_; }

  /// The numbers in the names of *folder*.
  std::vector<pid_t> numbers_in(const std::string& folder) {
    std::vector<pid_t> result;
    std::unique_ptr<DIR, int (*)(DIR*)> dir{::opendir(folder.c_str()),
                                            ::closedir};
    while (dir) {
      errno = 0;
      auto* entry = ::readdir(dir.get());
      if (!entry)
        break;
      if (auto number = whole_number<pid_t>(entry->d_name))
        result.push_back(*number);
    }
    if (!dir || errno != 0)
      note(errno);
    return result;
  }

  /// Empty also for a process that has ended.
  std::string text_of(const std::string& path) {
    std::string result;
    unique_fd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
    char bytes[4096];
    ssize_t n = file ? 1 : -1;
    while (file && n != 0) {
      n = ::read(file.get(), bytes, sizeof(bytes));
      if (n < 0 && errno != EINTR)
        break;
      result.append(bytes, static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    }
    if (n < 0)
      note(errno);
    return result;
  }

  std::optional<process_relations> relations_of(pid_t pid) {
    auto line = text_of(process_path(pid, "/stat"));
    // The name before is in parentheses and may hold anything.
    std::istringstream rest{line.substr(line.rfind(')') + 1)};
    process_relations result;
    if (!(rest >> result.state >> result.parent >> result.group
          >> result.session))
      return std::nullopt;
    return result;
  }

  /// How often *pid* has *file* open, and how. Files with other names are
  /// skipped: they may be on a disk that does not answer.
  std::vector<opening> openings_in(pid_t pid, const struct stat& file,
                                   const std::string& name) {
    std::vector<opening> result;
    for (auto number : numbers_in(process_path(pid, "/fd"))) {
      auto entry = concat('/', number);
      auto link = process_path(pid, "/fd") + entry;
      char target[PATH_MAX];
      auto size = ::readlink(link.c_str(), target, sizeof(target));
      std::string_view path{target,
                            static_cast<std::size_t>(size < 0 ? 0 : size)};
      if (auto removed = path.rfind(" (deleted)"); removed != path.npos)
        path = path.substr(0, removed);
      struct stat found {};
      if (!path.ends_with('/' + name) || ::stat(link.c_str(), &found) != 0
          || found.st_ino != file.st_ino || found.st_dev != file.st_dev)
        continue;
      auto info = text_of(process_path(pid, "/fdinfo") + entry);
      if (auto x = opening_from(info))
        result.push_back(*x);
    }
    return result;
  }

  /// A pidfd.
  unique_fd open(pid_t pid) {
    auto result = open_pidfd(pid);
    if (!result && errno != EINVAL) // Not a process by now, but a thread.
      note(errno);
    return result;
  }

private:
  /// Its lines are "pos: 7" and "lock: 1: FLOCK ADVISORY READ ...", among
  /// others.
  static std::optional<opening> opening_from(const std::string& fdinfo) {
    std::istringstream lines{fdinfo};
    std::optional<opening> result;
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words{line};
      std::string label, number, kind, mode, access;
      off_t offset = 0;
      words >> label;
      if (label == "pos:" && words >> offset)
        result = opening{offset};
      else if (result && label == "lock:"
               && words >> number >> kind >> mode >> access)
        result->has_lock |= kind == "FLOCK" && access == "READ";
    }
    return result;
  }

  void note(int code) {
    auto is_irrelevant =
      code == ENOENT || code == ESRCH || code == EACCES || code == EPERM;
    if (blind_ == 0 && !is_irrelevant)
      blind_ = code;
  }

  int blind_ = 0;
};

/// *pid* and those that it descends from.
std::vector<pid_t> line_of(process_observer& observer, pid_t pid) {
  std::vector<pid_t> result;
  while (pid > 0) {
    result.push_back(pid);
    auto found = observer.relations_of(pid);
    pid = found ? found->parent : 0;
  }
  return result;
}

bool contains(const std::vector<pid_t>& pids, pid_t x) {
  return std::ranges::find(pids, x) != pids.end();
}

struct member {
  pid_t pid = 0;
  unique_fd process;
};

/// The matching processes.
template <class Predicate>
std::vector<member> members_of(process_observer& observer,
                               const Predicate& is_member) {
  std::vector<member> result;
  for (auto pid : observer.numbers_in("/proc")) {
    if (!is_member(pid))
      continue;
    // Checked again: the number may belong to another process by now.
    auto process = observer.open(pid);
    if (process && is_member(pid))
      result.push_back({pid, std::move(process)});
  }
  return result;
}

/// Kills the matching processes and waits until they have ended, at most
/// *limit* after the first kill.
template <class Predicate>
killed_processes end_all(process_observer& observer, const Predicate& is_member,
                         std::chrono::milliseconds limit,
                         const std::stop_token& given_up = {}) {
  using clock = std::chrono::steady_clock;
  std::optional<clock::time_point> deadline;
  // A process may have started another one before it was killed.
  for (killed_processes result;;) {
    auto members = members_of(observer, is_member);
    if (given_up.stop_requested())
      return result; // They may belong to what has begun since.
    for (auto& x : members)
      send_signal(x.process, SIGKILL);
    if (!deadline)
      deadline = clock::now() + limit;
    for (auto& x : members) {
      auto left =
        std::chrono::ceil<std::chrono::milliseconds>(*deadline - clock::now());
      auto ms = std::max<int>(0, static_cast<int>(left.count()));
      (has_ended(x.process, ms) ? result.gone : result.left).push_back(x.pid);
    }
    result.blind = observer.blind();
    if (members.empty() || !result.left.empty())
      return result;
  }
}

/// The children of all threads of *pid*; nothing if the kernel has no list of
/// them.
std::optional<std::vector<pid_t>> children_of(process_observer& observer,
                                              pid_t pid) {
  std::vector<pid_t> result;
  bool known = false;
  auto tasks = process_path(pid, "/task");
  for (auto thread : observer.numbers_in(tasks)) {
    auto path = concat(tasks, '/', thread, "/children");
    known = known || ::access(path.c_str(), R_OK) == 0;
    std::istringstream children{observer.text_of(path)};
    for (pid_t child = 0; children >> child;)
      result.push_back(child);
  }
  return known ? std::optional{std::move(result)} : std::nullopt;
}

} // namespace

std::vector<pid_t> descendants_of(pid_t pid) {
  process_observer observer;
  auto result = children_of(observer, pid).value_or(std::vector<pid_t>{});
  for (std::size_t i = 0; i < result.size(); ++i)
    if (auto below = children_of(observer, result[i]))
      result.insert(result.end(), below->begin(), below->end());
  return result;
}

std::vector<pid_t> own_children() {
  process_observer observer;
  if (auto known = children_of(observer, ::getpid()))
    return std::move(*known);
  // A kernel without these files.
  std::vector<pid_t> result;
  auto self = ::getpid();
  for (auto pid : observer.numbers_in("/proc"))
    if (auto found = observer.relations_of(pid); found && found->parent == self)
      result.push_back(pid);
  return result;
}

killed_processes end_processes_with(const std::string& variable,
                                    std::chrono::milliseconds limit,
                                    const std::stop_token& given_up) {
  auto entry = '\0' + variable + '\0';
  process_observer observer;
  auto has_variable = [&](pid_t pid) {
    auto text = '\0' + observer.text_of(process_path(pid, "/environ"));
    return text.find(entry) != std::string::npos;
  };
  auto self = ::getpid();
  auto line = line_of(observer, self);
  // Its own child processes inherit the variable.
  auto is_one = has_variable(self);
  auto belongs_to_it = [&](pid_t pid) {
    auto found = observer.relations_of(pid);
    return (found && found->group == ::getpgrp())
           || contains(line_of(observer, pid), self);
  };
  return end_all(
    observer,
    [&](pid_t pid) {
      return has_variable(pid) && !contains(line, pid)
             && !(is_one && belongs_to_it(pid));
    },
    limit, given_up);
}

void sign_offset(const unique_fd& file) noexcept {
  ::lseek(file.get(), first_signature + ::getpid(), SEEK_SET);
}

killed_processes end_inheritors(const struct stat& file,
                                const std::string& name,
                                std::chrono::milliseconds limit,
                                const std::stop_token& given_up) {
  process_observer observer;
  auto line = line_of(observer, ::getpid());
  return end_all(
    observer,
    [&](pid_t pid) {
      auto found = observer.openings_in(pid, file, name);
      return std::ranges::any_of(
               found, [pid](const opening& x) { return is_inherited(x, pid); })
             && !contains(line, pid);
    },
    limit, given_up);
}

std::vector<pid_t> processes_with(const struct stat& file,
                                  const std::string& name) {
  process_observer observer;
  auto result = observer.numbers_in("/proc");
  std::erase_if(result, [&](pid_t pid) {
    return observer.openings_in(pid, file, name).empty();
  });
  return result;
}

void end_session(pid_t session, std::chrono::milliseconds limit) {
  process_observer observer;
  end_all(
    observer,
    [&](pid_t pid) {
      auto found = observer.relations_of(pid);
      return found && found->session == session && found->state != 'Z';
    },
    limit);
}

} // namespace troupe::internal
