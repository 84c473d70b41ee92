#include "tests/integration/run/listener.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include <caf/scoped_actor.hpp>

#include <troupe/actors.hpp>

#include "tests/support/own_system.hpp"
#include "troupe/actors/compat/messaging.hpp"

extern char** environ;

namespace troupe::internal::test {

namespace {

user_callback_actor::behavior_type
line_writer(user_callback_actor::pointer self, const std::string& file,
            bool dies) {
  auto write = [file](const std::string& line) {
    std::ofstream{file, std::ios::app} << line << '\n';
    return callback_done{};
  };
  return {
    [=](const before_run& x) {
      return write("before_run " + x.run.name + ' ' + x.run.path.string() + ' '
                   + std::to_string(x.run.world_size));
    },
    [=](const after_report& x) {
      if (dies)
        ::_exit(7);
      auto line = "after_report " + std::to_string(x.index);
      for (auto& values : x.values)
        line += " [" + to_string(values) + ']';
      return write(line + ' '
                   + (x.checkpoint ? x.checkpoint->path().string() : "none"));
    },
    [=](const after_exception& x) {
      return write("after_exception " + std::to_string(x.ranks.begin()->first)
                   + ' ' + x.ranks.begin()->second.what);
    },
    [=](const after_run& x) {
      self->quit(); // after the answer
      return write("after_run " + std::string{to_string(x.outcome.status)} + ' '
                   + x.outcome.checkpoint->name() + ' '
                   + std::to_string(x.outcome.best_checkpoints.size()));
    },
  };
}

/// Publishes *actor* until it has ended.
template <class Handle>
int serve(caf::actor_system& system, Handle actor, const std::string& socket) {
  auto endpoint = publish(system, actor, socket);
  if (!endpoint || write(STDOUT_FILENO, "r", 1) != 1)
    return 1;
  actor = nullptr;
  system.await_all_actors_done();
  return 0;
}

int follow(caf::actor_system& system, const std::string& socket,
           const std::string& file) {
  auto run = connect<run_control_actor>(system, socket);
  if (!run)
    return 1;
  auto actor = system.spawn<caf::detached>(observer, file, *run);
  caf::scoped_actor self{system};
  auto follows = false;
  request(self, *run, std::chrono::seconds{10}, follow_run{}, actor)
    .receive([&](const run_status& x) { follows = x.world_size == 2; },
             [](const caf::error&) {});
  run = run_control_actor{};
  actor = nullptr;
  if (!follows || write(STDOUT_FILENO, "r", 1) != 1)
    return 1;
  self->await_all_other_actors_done();
  return 0;
}

} // namespace

run_observer_actor::behavior_type observer(run_observer_actor::pointer self,
                                           const std::string& file,
                                           const run_control_actor& run) {
  auto write = [file](const std::string& line) {
    std::ofstream{file, std::ios::app} << line << '\n';
    return callback_done{};
  };
  auto left = std::make_shared<int>(5);
  return {
    [=](const before_run& x) {
      return write("before_run " + x.run.name + ' ' + x.run.path.string() + ' '
                   + std::to_string(x.run.world_size));
    },
    [=](const after_report&) {
      if (run && --*left == 0)
        send(self, run, finish_run{"another process has seen enough"});
      return callback_done{};
    },
    [=](const after_exception&) { return callback_done{}; },
    [=](const after_run& x) {
      self->quit(); // after the answer
      auto why = x.outcome.stop_reason;
      return write("after_run " + std::string{to_string(x.outcome.status)}
                   + (why.empty() ? "" : ": " + why));
    },
    [=](const state_changed& x) {
      return write("state " + std::string{to_string(x.to)});
    },
    [=](const group_started& x) {
      return write("group_started " + std::to_string(x.attempt));
    },
    [=](const group_ended& x) {
      return write("group_ended " + std::to_string(x.attempt) + ' '
                   + std::string{to_string(x.reason.code)});
    },
  };
}

int be_listener(const std::string& socket, const std::string& file,
                const std::string& deed) {
  own_system system;
  if (deed == "follow")
    return follow(system, socket, file);
  if (deed == "observe")
    return serve(
      system, system.spawn<caf::detached>(observer, file, run_control_actor{}),
      socket);
  return serve(system,
               system.spawn<caf::detached>(line_writer, file, deed == "die"),
               socket);
}

listener::listener(std::string socket, std::string file, std::string deed) {
  int out[2];
  if (pipe2(out, O_CLOEXEC) != 0)
    return;
  std::string program = "/proc/self/exe", mode = "--listener";
  char* arguments[] = {program.data(), mode.data(), socket.data(),
                       file.data(),    deed.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(out[1]);
  char byte;
  ready_ = read(out[0], &byte, 1) == 1;
  close(out[0]);
}

listener::~listener() {
  if (pid_ <= 0)
    return;
  kill(pid_, SIGKILL);
  wait();
}

int listener::wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

} // namespace troupe::internal::test
