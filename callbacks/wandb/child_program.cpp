#include "troupe/callbacks/wandb/child_program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>

#include "troupe/runtime/process/pidfd.hpp"
#include "troupe/runtime/process/system_failure.hpp"
#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe {

namespace {

using namespace std::chrono_literals;

// How long it may take to end in good order, and how often somebody who waits
// looks whether to go on.
constexpr auto patience = 500ms;
constexpr auto slice = 50ms;

std::vector<std::string>
environment_lines(const child_program::changes& changes) {
  std::vector<std::string> result;
  for (auto** x = ::environ; *x; ++x) {
    std::string line{*x};
    if (!changes.contains(line.substr(0, line.find('='))))
      result.push_back(std::move(line));
  }
  for (auto& [name, value] : changes)
    if (!value.empty())
      result.push_back(name + "=" + value);
  return result;
}

std::vector<char*> pointers_to(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (auto& x : strings)
    result.push_back(const_cast<char*>(x.c_str()));
  result.push_back(nullptr);
  return result;
}

// After fork, hence nothing but system calls. *parent* is who forked.
[[noreturn]] void become(char* const* argv, char* const* envp, int input,
                         int output, pid_t parent) noexcept {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  ::signal(SIGINT, SIG_DFL);
  if (::getppid() == parent && ::dup2(input, 0) == 0 && ::dup2(output, 1) == 1
      && ::dup2(output, 2) == 2) {
    // The driver's own descriptors would keep its sockets and locks alive.
    if (::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) == 0)
      ::execve(argv[0], argv, envp);
  }
  ::_exit(127);
}

// The processes below *pid*: W&B's client has its service in yet another
// session.
void add_descendants(pid_t pid, std::vector<pid_t>& result) {
  boost::system::error_code code;
  auto tasks = "/proc/" + std::to_string(pid) + "/task";
  for (fs::directory_iterator i{tasks, code}, end; !code && i != end;
       i.increment(code)) {
    std::ifstream in{(i->path() / "children").string()};
    for (pid_t child = 0; in >> child;) {
      result.push_back(child);
      add_descendants(child, result);
    }
  }
}

bool wait_for_end(const unique_fd& process, std::chrono::milliseconds limit) {
  pollfd x{process.get(), POLLIN, 0};
  return ::poll(&x, 1, static_cast<int>(limit.count())) > 0;
}

} // namespace

fs::path find_program(const std::string& name) {
  auto can_run = [](const fs::path& x) {
    auto found = look_up(x); // What cannot be looked up cannot be run.
    return found && found->is_file() && ::access(x.c_str(), X_OK) == 0;
  };
  if (name.find('/') != name.npos)
    return can_run(name) ? absolute_path(name).value_or(fs::path{})
                         : fs::path{};
  auto path = std::getenv("PATH");
  std::istringstream folders{path ? path : ""};
  for (std::string folder; std::getline(folders, folder, ':');)
    if (auto x = fs::path{folder} / name; !folder.empty() && can_run(x))
      return absolute_path(x).value_or(fs::path{});
  return {};
}

expected<child_program>
child_program::start(const std::vector<std::string>& command,
                     const changes& environment, const fs::path& log) {
  auto output = open_file(log, O_WRONLY | O_CREAT | O_APPEND, "open");
  if (!output)
    return tl::unexpected{output.error()};
  auto input = open_file("/dev/null", O_RDONLY, "open");
  if (!input)
    return tl::unexpected{input.error()};
  auto lines = environment_lines(environment);
  auto argv = pointers_to(command);
  auto envp = pointers_to(lines);
  auto parent = ::getpid();
  auto pid = ::fork();
  if (pid == 0)
    become(argv.data(), envp.data(), input->get(), output->get(), parent);
  if (pid < 0)
    return system_failure(ec::spawn, command.front() + " cannot be started");
  return child_program{pid, open_pidfd(pid)};
}

child_program::child_program(child_program&& other) noexcept
  : pid_(std::exchange(other.pid_, -1)), process_(std::move(other.process_)) {}

child_program& child_program::operator=(child_program&& other) noexcept {
  if (this != &other) {
    end();
    pid_ = std::exchange(other.pid_, -1);
    process_ = std::move(other.process_);
  }
  return *this;
}

bool child_program::wait(wait_time& time, wait_time::duration limit,
                         const std::stop_token& stop) {
  while (pid_ > 0 && !wait_for_end(process_, slice))
    if (stop.stop_requested() || time.passed() >= limit)
      return false;
  end();
  return true;
}

void child_program::end() noexcept {
  if (pid_ <= 0)
    return;
  std::vector<pid_t> below;
  try {
    add_descendants(pid_, below);
  } catch (...) {
    below.clear(); // they see their parent's end
  }
  std::vector<unique_fd> rest;
  for (auto x : below)
    if (auto process = open_pidfd(x))
      rest.push_back(std::move(process));
  send_signal(process_, SIGTERM);
  if (!wait_for_end(process_, patience))
    send_signal(process_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  for (auto& x : rest) {
    send_signal(x, SIGTERM);
    if (!wait_for_end(x, patience))
      send_signal(x, SIGKILL);
  }
}

} // namespace troupe
