#include "tests/integration/run/victim.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iostream>

#include "tests/integration/run/run_test.hpp"
#include "troupe/callbacks/mlflow/mlflow.hpp"

extern char** environ;

namespace troupe::internal::test {

namespace {

class waiting_callback : public user_callback {
public:
  void after_report(const run_context& run, const std::vector<metrics>&,
                    const std::optional<checkpoint>&) override {
    while (run.report_index == 2)
      pause();
  }
};

/// Takes its driver along at the second failure.
class deadly_callback : public user_callback {
public:
  void after_exception(const run_context&,
                       const std::map<int, rank_failure>&) override {
    if (++failures_ == 2)
      raise(SIGKILL);
  }

private:
  int failures_ = 0;
};

/// Interrupts its program when the run is at its end.
class interrupting_callback : public user_callback {
public:
  void after_run(const run_context&, const result&) override {
    kill(getpid(), SIGINT);
  }
};

void print_everywhere() {
  std::cout << "a line that the program prints on stdout" << std::endl;
  std::cerr << "a line that the program prints on stderr" << std::endl;
}

} // namespace

int be_victim(const std::string& storage, const std::string& action) {
  run_config config;
  config.name = "run";
  config.storage_path = storage;
  config.quiet = true;
  auto workers = 2;
  fault_plan plan;
  plan.steps = 1'000'000'000;
  plan.step = 2;
  plan.checkpoint_by = -1;
  if (action == "callback_waits") {
    config.callbacks = {std::make_shared<waiting_callback>()};
  } else if (action == "checkpoints") {
    config.callbacks = {std::make_shared<user_callback>()};
    plan.checkpoint_by = 0;
    plan.steps = 3;
  } else if (action.starts_with("die_at_second_failure")) {
    config.callbacks = {std::make_shared<deadly_callback>()};
    config.failure.max_failures = 2;
    plan.action = "throw";
    plan.attempt = -1;
    plan.step = 0;
    workers = action.ends_with("_inline") ? 0 : 2;
  } else {
    plan.action = action;
  }
  if (action == "leave_inline") {
    plan.action = "leave";
    workers = 0;
  }
  if (action.starts_with("interrupt_")) {
    config.callbacks = {std::make_shared<interrupting_callback>()};
    plan.steps = 3;
    if (action.starts_with("interrupt_behind_error"))
      plan.action = "throw";
    workers = action.ends_with("_inline") ? 0 : 2;
  }
  if (action.starts_with("tracker_down")) {
    config.quiet = false;
    config.trackers = {
      mlflow_tracker({.tracking_uri = "http://127.0.0.1:1"},
                     {.finish_timeout = std::chrono::hours{1}})};
    if (!action.starts_with("tracker_down_long"))
      plan.steps = 3;
    workers = action.ends_with("_inline") ? 0 : 2;
  }
  if (action == "leave")
    plan.checkpoint_by = 0;
  if (action == "show")
    config.quiet = false;
  if (action == "file_limit") {
    rlimit limit{8192, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  if (action == "print") {
    config.quiet = false;
    plan.steps = 3;
    print_everywhere();
  }
  auto outcome =
    data_parallel_trainer{
      counting_loop, plan,
      train_options{.scaling = {.num_workers = workers}, .run = config}}
      .fit();
  if (action == "print")
    print_everywhere();
  if (outcome.status == run_status_kind::finished)
    return 0;
  if (outcome.status == run_status_kind::preempted)
    return 43;
  return outcome.status == run_status_kind::aborted ? 42 : 1;
}

victim::victim(const std::string& storage, const std::string& action,
               const std::vector<int>& closed, int console) {
  std::string program = "/proc/self/exe", mode = "--victim", folder = storage,
              deed = action;
  char* arguments[] = {program.data(), mode.data(), folder.data(), deed.data(),
                       nullptr};
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (int fd : {STDOUT_FILENO, STDERR_FILENO})
    if (console >= 0)
      posix_spawn_file_actions_adddup2(&actions, console, fd);
  for (int fd : closed)
    posix_spawn_file_actions_addclose(&actions, fd);
  posix_spawn(&pid_, program.c_str(), &actions, &attributes, arguments,
              environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
}

victim::~victim() {
  if (pid_ <= 0)
    return;
  kill(SIGKILL);
  wait();
}

void victim::kill(int signal) {
  ::kill(pid_, signal);
}

int victim::wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return status;
}

void wait_for(const fs::path& folder, const std::function<bool()>& there) {
  auto watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  inotify_add_watch(watch, folder.c_str(),
                    IN_CREATE | IN_MODIFY | IN_DELETE | IN_MOVE);
  while (!there()) {
    pollfd change{watch, POLLIN, 0};
    poll(&change, 1, 50);
    char events[4096];
    while (read(watch, events, sizeof(events)) > 0) {
    }
  }
  close(watch);
}

void wait_for_lines(const fs::path& run, std::size_t lines) {
  auto count = [&] {
    auto text = bytes_of(run / "journal.jsonl");
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  };
  wait_for(run.parent_path(),
           [&] { return fs::exists(run / "journal.jsonl"); });
  auto goal = count() + lines;
  wait_for(run, [&] { return count() >= goal; });
}

std::string read_until(int fd, const std::string& text) {
  std::string result;
  char buffer[4096];
  while (text.empty() || result.find(text) == result.npos) {
    auto size = read(fd, buffer, sizeof(buffer));
    if (size <= 0)
      break;
    result.append(buffer, static_cast<std::size_t>(size));
  }
  return result;
}

std::vector<pid_t> descendants(pid_t root) {
  std::vector<pid_t> result;
  auto tasks = "/proc/" + std::to_string(root) + "/task";
  boost::system::error_code gone;
  for (fs::directory_iterator i{tasks, gone}, end; !gone && i != end;
       i.increment(gone)) {
    std::ifstream children{(i->path() / "children").string()};
    for (pid_t child; children >> child;) {
      result.push_back(child);
      for (auto pid : descendants(child))
        result.push_back(pid);
    }
  }
  return result;
}

std::vector<pid_t> processes_of_ranks() {
  auto all = descendants(getpid());
  return all.empty() ? all : std::vector<pid_t>{all.begin() + 1, all.end()};
}

bool gone_within(pid_t pid, int seconds) {
  auto fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0)
    return true;
  pollfd waiting{fd, POLLIN, 0};
  auto ended = poll(&waiting, 1, seconds * 1000) == 1;
  close(fd);
  return ended;
}

} // namespace troupe::internal::test
