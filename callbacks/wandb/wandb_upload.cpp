#include "troupe/callbacks/wandb/wandb_upload.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "troupe/callbacks/wandb/wandb_settings.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/processes.hpp"
#include "troupe/runtime/process/secrets.hpp"
#include "troupe/runtime/process/shell_quoted.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

// How long a program may take to end after SIGTERM, and how often a waiting
// thread checks whether to stop waiting.
constexpr int patience_ms = 500;
constexpr int slice_ms = 50;

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

// Runs after fork, hence nothing but system calls. *parent* is who forked.
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

constexpr std::size_t max_print = 16 * 1024 * 1024;

fs::path print_of(const wandb_fragment& x) {
  return x.path / "logs" / "upload.log";
}

// The last line that the client printed.
std::string last_line(const wandb_fragment& x) {
  std::istringstream in{read_file(print_of(x), max_print).value_or("")};
  std::string result;
  for (std::string line; std::getline(in, line);)
    if (!line.empty())
      result = line;
  return result;
}

// The client has the key and may print it.
void hide_secrets(const wandb_fragment& x, const std::string& key) {
  auto text = read_file(print_of(x), max_print);
  if (!text)
    return;
  if (auto clean = redacted(*text, key); clean != *text)
    (void) replace_file(print_of(x), clean);
}

} // namespace

fs::path find_program(const std::string& name) {
  auto can_run = [](const fs::path& x) {
    auto found = look_up(x); // A failed look-up means it cannot be run.
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
  TROUPE_TRY(auto output,
             open_file(log, O_WRONLY | O_CREAT | O_APPEND, "open"));
  TROUPE_TRY(auto input, open_file("/dev/null", O_RDONLY, "open"));
  auto lines = environment_lines(environment);
  auto argv = pointers_to(command);
  auto envp = pointers_to(lines);
  auto parent = ::getpid();
  auto pid = ::fork();
  if (pid == 0)
    become(argv.data(), envp.data(), input.get(), output.get(), parent);
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
  while (pid_ > 0 && !has_ended(process_, slice_ms))
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
    // W&B's client starts its service in yet another session.
    below = descendants_of(pid_);
  } catch (...) {
    // They notice that their parent has ended.
  }
  std::vector<unique_fd> rest;
  for (auto x : below)
    if (auto process = open_pidfd(x))
      rest.push_back(std::move(process));
  send_signal(process_, SIGTERM);
  if (!has_ended(process_, patience_ms))
    send_signal(process_, SIGKILL);
  uninterrupted([&] { return ::waitpid(pid_, nullptr, 0); });
  pid_ = -1;
  for (auto& x : rest) {
    send_signal(x, SIGTERM);
    if (!has_ended(x, patience_ms))
      send_signal(x, SIGKILL);
  }
}

std::string
wandb_upload::command_for(const std::vector<wandb_fragment>& fragments) {
  std::string result = "wandb sync --yes";
  for (auto& x : fragments)
    result += " " + shell_quoted(x.path.string());
  return result;
}

std::string
wandb_upload::obstacle(const std::vector<wandb_fragment>& fragments) const {
  if (find_program(options_.program).empty())
    return "no program '" + options_.program
           + "' was found to upload the run; install `wandb` from PyPI, set "
             "WANDB_API_KEY and run: "
           + command_for(fragments);
  if (!has_wandb_key(options_))
    return "WANDB_API_KEY is not set and ~/.netrc has no entry for the "
           "service; "
           "with a key run: WANDB_API_KEY=<key> "
           + command_for(fragments);
  return {};
}

void wandb_upload::follow(const std::vector<wandb_fragment>& fragments) {
  follower_.reset();
  if (auto child = start({"beta", "sync", "--live", "--yes"}, fragments))
    follower_ = std::move(*child);
}

expected<void>
wandb_upload::finish(const std::vector<wandb_fragment>& fragments,
                     const std::stop_token& stop) {
  wait_time time;
  auto is_late = [&] { return time.passed() >= options_.finish_timeout; };
  if (follower_)
    follower_->wait(time, options_.finish_timeout, stop);
  follower_.reset();
  auto left = unsynced(fragments);
  if (!left.empty() && !stop.stop_requested() && !is_late()) {
    TROUPE_TRY(auto child, start({"sync", "--yes"}, left));
    child.wait(time, options_.finish_timeout, stop);
    left = unsynced(left);
  }
  for (auto& x : fragments)
    hide_secrets(x, options_.api_key);
  if (left.empty())
    return {};
  auto late = is_late();
  return failure(stop.stop_requested() ? ec::stopped
                 : late                ? ec::timeout
                                       : ec::protocol,
                 concat("W&B's client has not uploaded ", left.size(),
                        " folder(s) of the run", (late ? " in time" : ""),
                        "; its last line is '",
                        redacted(last_line(left.front()), options_.api_key),
                        "'. Later: ", command_for(left)));
}

expected<child_program>
wandb_upload::start(const std::vector<std::string>& words,
                    const std::vector<wandb_fragment>& fragments) {
  auto program = find_program(options_.program);
  if (program.empty())
    return failure(ec::unsupported, obstacle(fragments));
  std::vector<std::string> command{program.string()};
  command.insert(command.end(), words.begin(), words.end());
  for (auto& x : fragments)
    command.push_back(x.path.string());
  // The mode is settled by now, and an empty WANDB_RESUME breaks the client.
  child_program::changes environment{{"WANDB_MODE", ""}};
  if (auto resume = std::getenv("WANDB_RESUME"); resume && !*resume)
    environment["WANDB_RESUME"] = "";
  if (!options_.api_key.empty())
    environment["WANDB_API_KEY"] = options_.api_key;
  return child_program::start(command, environment,
                              print_of(fragments.front()));
}

} // namespace troupe::internal
