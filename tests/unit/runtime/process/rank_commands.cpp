#include "tests/unit/runtime/process/rank_commands.hpp"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <thread>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "troupe/runtime/process/function_address.hpp"
#include "troupe/runtime/process/spawner.hpp"
#include "troupe/runtime/process/usable_cores.hpp"

namespace troupe::internal::test {
namespace {

using descriptors = const std::vector<int>&;

void say(int fd, const std::string& text) {
  if (::write(fd, text.data(), text.size()) < 0)
    std::abort();
}

int wait_for_end_of(int fd) {
  char byte = 0;
  while (::read(fd, &byte, 1) > 0)
    continue;
  return 0;
}

/// Starts a process without end and says its number: a child of the rank, one
/// in a session of its own, or one whose parent in between has ended.
void start_child(const std::string& way, int fd) {
  int ready[2];
  if (::pipe(ready) != 0)
    std::abort();
  auto between = way == "orphan" ? ::fork() : 0;
  if (between == 0) {
    if (::fork() == 0) {
      if (!way.empty())
        ::setsid();
      say(fd, std::to_string(::getpid()) + "\n");
      say(ready[1], "r");
      for (;;)
        ::pause();
    }
    if (way == "orphan")
      ::_exit(0);
  } else {
    ::waitpid(between, nullptr, 0);
  }
  char byte = 0;
  if (::read(ready[0], &byte, 1) != 1)
    std::abort();
}

std::string cores() {
  std::string result;
  for (int core : own_cores().numbers)
    result += std::to_string(core) + " ";
  return result;
}

int resolve_address(const std::string& argument) {
  function_address address;
  auto first = argument.find('|');
  auto second = argument.find('|', first + 1);
  address.module = argument.substr(0, first);
  address.offset = std::stoull(argument.substr(first + 1, second - first - 1));
  address.build_id = argument.substr(second + 1);
  auto fn = resolve(address);
  if (!fn) {
    std::cerr << fn.error().message << std::endl;
    return 1;
  }
  // A function of a library is enough if it is there; of the program, this one.
  bool is_right = !address.module.empty()
                  || *fn == reinterpret_cast<const void*>(&run_rank_command);
  return is_right ? 0 : 2;
}

const std::map<std::string,
               std::function<int(const std::string&, descriptors)>>&
commands() {
  static const std::map<std::string,
                        std::function<int(const std::string&, descriptors)>>
    table{
      {"environ", // All that the kernel and this process know of it.
       [](auto&, descriptors fds) {
         std::ifstream in{"/proc/self/environ", std::ios::binary};
         std::string all{std::istreambuf_iterator<char>{in}, {}};
         for (auto variable = environ; *variable; ++variable)
           all += *variable;
         say(fds.at(0), all);
         return 0;
       }},
      {"return", [](auto& x, descriptors) { return std::stoi(x); }},
      {"exit",
       [](auto& x, descriptors) -> int {
         std::printf("printed before exit");
         std::exit(std::stoi(x));
       }},
      {"raise",
       [](auto& x, descriptors) {
         ::signal(std::stoi(x), SIG_DFL); // Sanitizers catch some.
         return ::raise(std::stoi(x));
       }},
      {"throw_in_thread",
       [](auto& x, descriptors) {
         std::thread{[&] { throw std::out_of_range{x}; }}.join();
         return 0;
       }},
      {"throw_in_child", // Which is waited for.
       [](auto& x, descriptors) {
         auto child = ::fork();
         if (child == 0)
           std::thread{[&] { throw std::out_of_range{x}; }}.join();
         ::waitpid(child, nullptr, 0);
         return 7;
       }},
      {"throw_number_in_thread",
       [](auto&, descriptors) {
         std::thread{[] { throw 42; }}.join();
         return 0;
       }},
      {"terminate", [](auto&, descriptors) -> int { std::terminate(); }},
      {"wait_traced", // Says once any process may trace it.
       [](auto&, descriptors d) {
         ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
         say(d.at(1), "traced\n");
         return wait_for_end_of(d.at(0));
       }},
      {"wait", [](auto&, descriptors d) { return wait_for_end_of(d.at(0)); }},
      {"say",
       [](auto& x, descriptors d) {
         for (std::size_t i = 0; i < d.size(); ++i)
           say(d[i], x + std::to_string(i));
         return 0;
       }},
      {"length",
       [](auto& x, descriptors d) {
         say(d.at(0), std::to_string(x.size()));
         return 0;
       }},
      {"variable",
       [](auto& x, descriptors d) {
         auto* value = std::getenv(x.c_str());
         say(d.at(0), value ? value : "(not set)");
         return 0;
       }},
      {"sleep",
       [](auto&, descriptors) -> int {
         for (;;)
           ::pause();
       }},
      {"end_child",
       [](auto& x, descriptors) { return end_of_child(std::stoi(x)); }},
      {"leave_child",
       [](auto& x, descriptors d) {
         start_child(x, d.at(0));
         return 3;
       }},
      {"keep_child",
       [](auto& x, descriptors d) {
         start_child(x, d.at(0));
         return wait_for_end_of(d.at(1));
       }},
      {"keep_orphan",
       [](auto&, descriptors d) {
         start_child("orphan", d.at(0));
         return wait_for_end_of(d.at(1));
       }},
      {"cores",
       [](auto&, descriptors d) {
         say(d.at(0), cores());
         return 0;
       }},
      {"parent",
       [](auto&, descriptors d) {
         say(d.at(0), std::to_string(::getppid()));
         return 0;
       }},
      {"session",
       [](auto&, descriptors d) {
         say(d.at(0), std::to_string(::getsid(0)));
         return 0;
       }},
      {"print",
       [](auto& x, descriptors) {
         std::cout << x << " to stdout" << std::endl;
         std::cerr << x << " to stderr" << std::endl;
         std::cout << "unflushed";
         return 0;
       }},
      {"open_descriptors",
       [](auto&, descriptors d) {
         std::string found;
         for (int fd = 0; fd < 1024; ++fd)
           if (::fcntl(fd, F_GETFD) >= 0)
             found += std::to_string(fd) + " ";
         say(d.at(0), found);
         return 0;
       }},
      {"has_spawner",
       [](auto&, descriptors) { return spawner().has_value() ? 1 : 0; }},
      {"resolve", [](auto& x, descriptors) { return resolve_address(x); }},
    };
  return table;
}

} // namespace

int end_of_child(int signal) {
  auto child = ::fork();
  if (child == 0) {
    ::alarm(60); // SIGALRM, should it outlive the signal
    for (;;)
      ::pause();
  }
  ::kill(child, signal);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

int run_rank_command(std::string payload, std::vector<int> descriptors) {
  auto space = payload.find(' ');
  auto argument =
    space == std::string::npos ? std::string{} : payload.substr(space + 1);
  return commands().at(payload.substr(0, space))(argument, descriptors);
}

} // namespace troupe::internal::test
