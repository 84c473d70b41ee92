#pragma once

#include <cstring>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <caf/io/basp/header.hpp>
#include <caf/io/middleman.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <gtest/gtest.h>

#include "tests/support/own_system.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/transport/connect.hpp"
#include "troupe/actors/transport/published_socket.hpp"
#include "troupe/actors/transport/unix_endpoint.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal::test {

using namespace std::chrono_literals;

using echo_actor = caf::typed_actor<caf::result<std::string>(std::string)>;
using doubler_actor = caf::typed_actor<caf::result<std::int32_t>(std::int32_t)>;

inline echo_actor::behavior_type echo(echo_actor::pointer) {
  return {[](std::string& text) { return std::move(text); }};
}

inline doubler_actor::behavior_type doubler(doubler_actor::pointer) {
  return {[](std::int32_t x) { return 2 * x; }};
}

/// An actor system of ours with one published echo actor.
struct echo_server {
  explicit echo_server(const fs::path& path)
    : actor(system.spawn(echo)),
      socket(publish(system, actor, path, [this](const std::string& x) {
        std::lock_guard guard{mutex};
        refused_.push_back(x);
      })) {}

  ~echo_server() { caf::anon_send_exit(actor, caf::exit_reason::kill); }

  /// What it says of peers and connections that it refused.
  std::vector<std::string> refused() {
    std::lock_guard guard{mutex};
    return refused_;
  }

  std::mutex mutex;
  std::vector<std::string> refused_;
  own_system system;
  echo_actor actor;
  expected<published_socket> socket;
};

/// What *server* answers to *text*.
inline std::string ask(caf::actor_system& system, const echo_actor& server,
                       std::string text) {
  std::string result;
  caf::scoped_actor self{system};
  request(self, server, 10s, std::move(text))
    .receive([&](std::string& x) { result = std::move(x); },
             [&](const caf::error& x) { result = caf::to_string(x); });
  return result;
}

/// Runs *f* in a child process; its result is the exit code.
template <class F>
pid_t in_child(F f) {
  auto child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(f());
  }
  return child;
}

inline int exit_code_of(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Serves an echo actor at *path* in a child until it is killed; returns when
/// it is there.
inline pid_t serve_in_child(const fs::path& path) {
  int ready[2];
  if (pipe(ready) != 0)
    return -1;
  auto child = in_child([&] {
    echo_server server{path};
    if (!server.socket || write(ready[1], "r", 1) != 1)
      return 1;
    pause();
    return 0;
  });
  char byte;
  auto got = read(ready[0], &byte, 1);
  close(ready[0]);
  close(ready[1]);
  return got == 1 ? child : -1;
}

/// A client that does not speak BASP.
inline unique_fd connect_raw(const fs::path& path) {
  unique_fd result{socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  if (::connect(result.get(), reinterpret_cast<sockaddr*>(&address),
                sizeof(address))
      != 0)
    result.reset();
  return result;
}

/// Reads until the other side closes.
inline void await_close(const unique_fd& socket) {
  char buffer[4096];
  while (recv(socket.get(), buffer, sizeof(buffer), 0) > 0)
    ;
}

inline caf::byte_buffer frame(caf::io::basp::message_type operation,
                              std::uint32_t announced,
                              const caf::byte_buffer& payload = {}) {
  caf::byte_buffer result;
  auto sink = serializer_to(result);
  EXPECT_TRUE(
    sink.apply(caf::io::basp::header{operation, 0, announced, 0, 0, 0}));
  result.insert(result.end(), payload.begin(), payload.end());
  return result;
}

inline void send_all(const unique_fd& socket, const caf::byte_buffer& bytes) {
  for (std::size_t sent = 0; sent < bytes.size();) {
    auto size = ::send(socket.get(), bytes.data() + sent, bytes.size() - sent,
                       MSG_NOSIGNAL);
    if (size <= 0)
      return; // closed: what some tests want to see
    sent += static_cast<std::size_t>(size);
  }
}

inline std::size_t open_descriptors() {
  auto folder = fs::directory_iterator{"/proc/self/fd"};
  return static_cast<std::size_t>(std::distance(begin(folder), end(folder)));
}

/// Resident memory of this process in bytes.
inline std::size_t resident_bytes() {
  std::size_t total = 0, resident = 0;
  std::ifstream{"/proc/self/statm"} >> total >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

class transport_test : public testing::Test {
protected:
  private_folder folder;
  fs::path path = folder.path() / "run";
};

} // namespace troupe::internal::test
