#include "tests/unit/runtime/process/process_modes.hpp"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/sleeping_program.hpp"
#include "tests/unit/runtime/process/rank_commands.hpp"
#include "tests/unit/runtime/process/started_rank.hpp"
#include "troupe/runtime/process/function_address.hpp"
#include "troupe/runtime/process/interrupt_watch.hpp"
#include "troupe/runtime/process/processes.hpp"
#include "troupe/runtime/process/resource_ledger.hpp"
#include "troupe/runtime/process/spawner.hpp"

namespace troupe::internal::test {
namespace {

std::mutex held_for_ever;

/// This process may open two more files: as many as the spawner's socket takes.
void leave_two_descriptors() {
  unique_fd first{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  unique_fd second{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = static_cast<rlim_t>(second.get()) + 1;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

/// Starts two ranks that wait, says all process ids, and waits itself.
int hold_ranks() {
  auto& client = **spawner();
  auto pipe = make_pipe();
  std::vector<started_rank> ranks;
  for (int i = 0; i < 2; ++i) {
    auto request = command("wait");
    request.descriptors.push_back(std::move(*duplicate(pipe.reader.get())));
    ranks.push_back(start_rank(client, std::move(request)));
  }
  std::cout << spawner_of(client);
  for (auto& rank : ranks)
    std::cout << " " << *rank.pid.get();
  std::cout << std::endl;
  for (auto& rank : ranks)
    rank.end.get();
  return EXIT_FAILURE; // Not before it was killed.
}

/// Starts a rank that may be traced and one with a child in a session of its
/// own, says the spawner, the rank and the child, and waits.
int hold_traced() {
  auto& client = **spawner();
  auto said = make_pipe();
  auto wait = make_pipe();
  auto start = [&](const char* what, bool waits_first) {
    auto request = command(what);
    request.descriptors.push_back(
      std::move(*duplicate((waits_first ? wait.reader : said.writer).get())));
    request.descriptors.push_back(
      std::move(*duplicate((waits_first ? said.writer : wait.reader).get())));
    return start_rank(client, std::move(request));
  };
  auto traced = start("wait_traced", true);
  read_line(said.reader.get());
  auto other = start("keep_child session", false);
  auto child = read_line(said.reader.get());
  std::cout << spawner_of(client) << " " << *traced.pid.get() << " " << child
            << std::endl;
  other.end.get();
  return EXIT_FAILURE; // Not before it was killed.
}

/// A rank of a spawner that was executed finds a function of this process.
int find_function() {
  auto address =
    locate(reinterpret_cast<const void*>(&run_rank_command)).value();
  auto end = run_rank(**spawner(), command("resolve " + address.module + "|"
                                           + std::to_string(address.offset)
                                           + "|" + address.build_id));
  std::cout << to_string(end) << std::endl;
  return EXIT_SUCCESS;
}

/// Gets SIGTERM until it has counted three times.
int interrupt_for_ever() {
  interrupt_watch watch;
  for (;;)
    ::raise(SIGTERM);
}

/// Gets signals that come together: they were blocked when they were sent.
int get_burst_of_interrupts() {
  interrupt_watch watch{{SIGUSR1}};
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, &before);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1})
    ::raise(signal);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  return EXIT_SUCCESS;
}

/// Ends in good order while ranks still run.
int leave_ranks() {
  auto pipe = make_pipe();
  auto request = command("wait");
  request.descriptors.push_back(std::move(pipe.reader));
  auto rank = start_rank(**spawner(), std::move(request));
  std::cout << *rank.pid.get() << std::endl;
  std::exit(EXIT_SUCCESS);
}

/// Kills its rank when the program ends, if it has one, and says how it ended.
struct static_owner {
  ~static_owner() {
    if (!client)
      return;
    client->kill(rank.id, SIGKILL);
    std::cout << to_string(rank.end.get()) << std::endl;
  }

  spawner_connection* client = nullptr;
  started_rank rank;
  unique_fd writer;
} owner_at_exit;

/// Leaves a rank to an object with static storage.
int leave_rank_to_static_owner() {
  auto pipe = make_pipe();
  auto request = command("wait");
  request.descriptors.push_back(std::move(pipe.reader));
  owner_at_exit.writer = std::move(pipe.writer);
  owner_at_exit.client = *spawner();
  owner_at_exit.rank = start_rank(*owner_at_exit.client, std::move(request));
  return owner_at_exit.rank.pid.get() ? EXIT_SUCCESS : EXIT_FAILURE;
}

/// Once the program ends, says what a run that starts then gets, and whether
/// one that is under way sees a signal.
struct user_at_exit {
  ~user_at_exit() {
    if (!watch)
      return;
    auto share = own_resource_ledger().take({.cores = {3}, .core_count = 1});
    ::raise(SIGTERM);
    pollfd seen{watch->fd(), POLLIN, 0};
    std::cout << share->cores.size() << " core, " << ::poll(&seen, 1, 0)
              << " signal" << std::endl;
  }

  std::optional<interrupt_watch> watch;
} last_user;

/// Leaves a watch to an object with static storage, which is destroyed after
/// those that are made when they are first needed.
int use_resources_at_exit() {
  last_user.watch.emplace();
  return own_resource_ledger().take({})->cores.empty() ? EXIT_SUCCESS
                                                       : EXIT_FAILURE;
}

/// Drops the rights of root and says what becomes of its ranks; says nothing if
/// it cannot, as in a user namespace with one user.
int change_user() {
  if (::seteuid(54321) != 0)
    return EXIT_SUCCESS;
  auto refused = spawner();
  if (::seteuid(0) != 0)
    return EXIT_FAILURE;
  std::cout << (refused ? "starts ranks" : refused.error().message)
            << std::endl;
  return spawner() ? EXIT_SUCCESS : EXIT_FAILURE;
}

/// The current folder of this program, which it may not enter any more; unset:
/// it could not be made.
unique_fd closed_folder;

void close_current_folder() {
  char folder[] = "/tmp/troupe-closed-XXXXXX";
  if (!::mkdtemp(folder) || ::chdir(folder) != 0)
    return;
  unique_fd opened{::open(".", O_PATH | O_DIRECTORY | O_CLOEXEC)};
  ::chmod(folder, 0);
  ::rmdir(folder);
  if (::geteuid() == 0 && ::seteuid(54321) != 0)
    return;
  closed_folder = std::move(opened);
}

/// Says how a rank of that folder ends that returns 5; nothing if there is no
/// such folder.
int start_in_closed_folder() {
  if (!closed_folder)
    return EXIT_SUCCESS;
  auto request = command("return 5");
  request.folder = std::move(closed_folder);
  std::cout << to_string(run_rank(**spawner(), std::move(request)))
            << std::endl;
  return ::seteuid(::getuid()) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/// Kills the processes with this program's variable; says which of those that
/// have it are left.
void end_processes_as_a_child(pid_t stranger) {
  auto parent = ::getppid();
  ::setpgid(0, 0);
  auto pipe = make_pipe();
  if (::fork()
      == 0) { // So that the one in the group is not a child of this one.
    auto member = ::fork();
    if (member == 0)
      ::raise(SIGSTOP);
    else
      (void) !::write(pipe.writer.get(), &member, sizeof(member));
    ::_exit(EXIT_SUCCESS);
  }
  pid_t member = -1;
  (void) !::read(pipe.reader.get(), &member, sizeof(member));
  ::wait(nullptr);
  auto child = start_sleep(environ);
  auto variable = std::string{kin_variable} + '=' + std::getenv(kin_variable);
  auto killed = end_processes_with(variable, std::chrono::minutes{1});
  auto says = [&](const char* who, pid_t pid) {
    std::cout << who
              << (std::ranges::count(killed.gone, pid) ? " gone\n" : "\n");
  };
  says("parent", parent);
  says("member of the group", member);
  says("child", child);
  says("stranger", stranger);
  std::cout << std::flush;
  for (auto pid : {member, child})
    ::kill(pid, SIGKILL);
}

int spare_relatives() {
  auto stranger = start_sleep(environ);
  auto child = ::fork();
  if (child == 0) {
    end_processes_as_a_child(stranger);
    ::_exit(EXIT_SUCCESS);
  }
  ::waitpid(child, nullptr, 0);
  return EXIT_SUCCESS;
}

} // namespace

void prepare_mode(const std::string& mode) {
  if (mode == "closed_folder")
    close_current_folder();
  if (mode == "two_descriptors")
    leave_two_descriptors();
  if (mode != "late")
    return;
  held_for_ever.lock();
  std::thread{[] { held_for_ever.lock(); }}.detach();
}

int run_mode(const std::string& mode) {
  if (mode == "change_user")
    return change_user();
  if (mode == "closed_folder")
    return start_in_closed_folder();
  if (mode == "hold_ranks")
    return hold_ranks();
  if (mode == "hold_traced")
    return hold_traced();
  if (mode == "late")
    std::_Exit(find_function()); // The thread is still there.
  if (mode == "three_interrupts")
    return interrupt_for_ever();
  if (mode == "burst_of_interrupts")
    return get_burst_of_interrupts();
  if (mode == "two_descriptors")
    return EXIT_SUCCESS;
  if (mode == "leave_ranks")
    return leave_ranks();
  if (mode == "leave_rank_to_static_owner")
    return leave_rank_to_static_owner();
  if (mode == "use_resources_at_exit")
    return use_resources_at_exit();
  if (mode == "spare_relatives")
    return spare_relatives();
  return EXIT_FAILURE;
}

int program::wait() const {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR)
    continue;
  return status;
}

program start_program(const std::string& mode) {
  auto pipe = make_pipe();
  std::vector<std::string> variables{mode_variable + ("=" + mode)};
  for (char** entry = environ; *entry; ++entry)
    variables.emplace_back(*entry);
  std::vector<char*> environment;
  for (auto& x : variables)
    environment.push_back(x.data());
  environment.push_back(nullptr);
  std::string name = "process_test";
  char* arguments[] = {name.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe.writer.get(), STDOUT_FILENO);
  program result;
  int failed = ::posix_spawn(&result.pid, "/proc/self/exe", &actions, nullptr,
                             arguments, environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0)
    std::abort();
  result.output = std::move(pipe.reader);
  return result;
}

} // namespace troupe::internal::test
