#include "troupe/runtime/process/process_tree.hpp"

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <string>

#include <dirent.h>
#include <unistd.h>

#include "troupe/runtime/process/pidfd.hpp"

namespace troupe {
namespace {

/// The numbers in the names of *folder*.
std::vector<pid_t> numbers_in(const char* folder) {
  std::vector<pid_t> result;
  std::unique_ptr<DIR, int (*)(DIR*)> dir{::opendir(folder), ::closedir};
  if (!dir)
    return result;
  while (auto* entry = ::readdir(dir.get()))
    if (std::isdigit(static_cast<unsigned char>(entry->d_name[0])))
      result.push_back(std::atoi(entry->d_name));
  return result;
}

struct kinship {
  char state = '?';
  pid_t parent = 0;
  pid_t group = 0;
  pid_t session = 0;
};

std::optional<kinship> kinship_of(pid_t pid) {
  std::ifstream file{"/proc/" + std::to_string(pid) + "/stat"};
  std::string line;
  if (!std::getline(file, line))
    return std::nullopt;
  // The name before is in parentheses and may hold anything.
  std::istringstream rest{line.substr(line.rfind(')') + 1)};
  kinship result;
  if (!(rest >> result.state >> result.parent >> result.group
        >> result.session))
    return std::nullopt;
  return result;
}

struct member {
  pid_t pid = 0;
  unique_fd process;
};

/// The processes that are wanted.
template <class Predicate>
std::vector<member> members_of(const Predicate& is_member) {
  std::vector<member> result;
  for (auto pid : numbers_in("/proc")) {
    if (!is_member(pid))
      continue;
    // Looked at again: the number may be another process's by now.
    auto process = open_pidfd(pid);
    if (process && is_member(pid))
      result.push_back({pid, std::move(process)});
  }
  return result;
}

/// Kills the processes that are wanted and waits until they are gone, at most
/// *limit*.
template <class Predicate>
killed_processes end_all(const Predicate& is_member,
                         std::chrono::milliseconds limit) {
  using clock = std::chrono::steady_clock;
  auto deadline = clock::now() + limit;
  // A process may have started another one before it was killed.
  for (killed_processes result;;) {
    auto members = members_of(is_member);
    for (auto& x : members)
      send_signal(x.process, SIGKILL);
    for (auto& x : members) {
      auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - clock::now());
      auto ms = std::max<int>(0, static_cast<int>(left.count()));
      (has_ended(x.process, ms) ? result.gone : result.left).push_back(x.pid);
    }
    if (members.empty() || !result.left.empty())
      return result;
  }
}

} // namespace

std::vector<pid_t> own_children() {
  std::vector<pid_t> result;
  bool known = false;
  for (auto thread : numbers_in("/proc/self/task")) {
    std::ifstream file{"/proc/self/task/" + std::to_string(thread)
                       + "/children"};
    known = known || file.is_open();
    for (pid_t child = 0; file >> child;)
      result.push_back(child);
  }
  if (known)
    return result;
  // A kernel without these files.
  auto self = ::getpid();
  for (auto pid : numbers_in("/proc"))
    if (auto found = kinship_of(pid); found && found->parent == self)
      result.push_back(pid);
  return result;
}

killed_processes end_processes_with(const std::string& variable,
                                    std::chrono::milliseconds limit) {
  auto entry = '\0' + variable + '\0';
  return end_all(
    [&entry](pid_t pid) {
      // Empty for a process that has ended, and for one of another user.
      std::ifstream file{"/proc/" + std::to_string(pid) + "/environ",
                         std::ios::binary};
      std::string text(1, '\0');
      text.append(std::istreambuf_iterator<char>{file}, {});
      return text.find(entry) != std::string::npos;
    },
    limit);
}

void end_session(pid_t session, std::chrono::milliseconds limit) {
  end_all(
    [session](pid_t pid) {
      auto found = kinship_of(pid);
      return found && found->session == session && found->state != 'Z';
    },
    limit);
}

} // namespace troupe
