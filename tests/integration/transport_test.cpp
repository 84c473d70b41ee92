#include <csignal>
#include <cstring>
#include <fstream>
#include <future>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <grp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <caf/event_based_actor.hpp>
#include <caf/init_global_meta_objects.hpp>
#include <caf/io/basp/header.hpp>
#include <caf/io/middleman.hpp>
#include <caf/node_id.hpp>
#include <caf/scoped_actor.hpp>
#include <gtest/gtest.h>

#include "tests/support/child.hpp"
#include "tests/support/named_sockets.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/transport/byte_link.hpp"
#include "troupe/actors/transport/connect.hpp"
#include "troupe/actors/transport/network_thread.hpp"
#include "troupe/actors/transport/private_endpoint.hpp"
#include "troupe/actors/transport/published_socket.hpp"
#include "troupe/actors/transport/system_config.hpp"
#include "troupe/actors/transport/unix_endpoint.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal {

namespace {

using namespace std::chrono_literals;

using echo_actor = caf::typed_actor<caf::result<std::string>(std::string)>;
using doubler_actor = caf::typed_actor<caf::result<std::int32_t>(std::int32_t)>;

echo_actor::behavior_type echo(echo_actor::pointer) {
  return {[](std::string& text) { return std::move(text); }};
}

doubler_actor::behavior_type doubler(doubler_actor::pointer) {
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
  system_config config;
  caf::actor_system system{config};
  echo_actor actor;
  expected<published_socket> socket;
};

/// What *server* answers to *text*.
std::string ask(caf::actor_system& system, const echo_actor& server,
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

int exit_code_of(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Serves an echo actor at *path* in a child until it is killed; returns when
/// it is there.
pid_t serve_in_child(const fs::path& path) {
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
unique_fd connect_raw(const fs::path& path) {
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
void await_close(const unique_fd& socket) {
  char buffer[4096];
  while (recv(socket.get(), buffer, sizeof(buffer), 0) > 0)
    ;
}

caf::byte_buffer frame(caf::io::basp::message_type operation,
                       std::uint32_t announced,
                       const caf::byte_buffer& payload = {}) {
  caf::byte_buffer result;
  auto sink = serializer_to(result);
  EXPECT_TRUE(
    sink.apply(caf::io::basp::header{operation, 0, announced, 0, 0, 0}));
  result.insert(result.end(), payload.begin(), payload.end());
  return result;
}

void send_all(const unique_fd& socket, const caf::byte_buffer& bytes) {
  for (std::size_t sent = 0; sent < bytes.size();) {
    auto size = ::send(socket.get(), bytes.data() + sent, bytes.size() - sent,
                       MSG_NOSIGNAL);
    if (size <= 0)
      return; // closed: what some tests want to see
    sent += static_cast<std::size_t>(size);
  }
}

std::size_t open_descriptors() {
  auto folder = fs::directory_iterator{"/proc/self/fd"};
  return static_cast<std::size_t>(std::distance(begin(folder), end(folder)));
}

/// Resident memory of this process in bytes.
std::size_t resident_bytes() {
  std::size_t total = 0, resident = 0;
  std::ifstream{"/proc/self/statm"} >> total >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

class transport_test : public testing::Test {
protected:
  test::private_folder folder;
  fs::path path = folder.path() / "run";
};

// -- actors meet --------------------------------------------------------------

TEST_F(transport_test, an_actor_answers_another_system) {
  echo_server server{path};
  system_config config;
  caf::actor_system client{config};
  auto found = connect<echo_actor>(client, path);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(ask(client, *found, "hello"), "hello");
}

TEST_F(transport_test, eight_processes_meet_at_one_server) {
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  std::vector<pid_t> clients;
  for (int i = 0; i < 8; ++i)
    clients.push_back(in_child([&, i] {
      char byte;
      if (read(go[0], &byte, 1) != 1)
        return 1;
      system_config config;
      caf::actor_system system{config};
      auto found = connect<echo_actor>(system, path);
      return found
                 && ask(system, *found, std::to_string(i)) == std::to_string(i)
               ? 0
               : 2;
    }));
  echo_server server{path};
  ASSERT_EQ(write(go[1], "12345678", 8), 8);
  for (auto client : clients)
    EXPECT_EQ(exit_code_of(client), 0);
  close(go[0]);
  close(go[1]);
}

TEST_F(transport_test, a_message_larger_than_any_socket_buffer_arrives_whole) {
  echo_server server{path};
  system_config config;
  caf::actor_system client{config};
  auto found = connect<echo_actor>(client, path);
  ASSERT_TRUE(found) << found.error().message;
  std::string text(2 * 1024 * 1024, ' ');
  std::iota(text.begin(), text.end(), '\0');
  EXPECT_TRUE(ask(client, *found, text) == text);
}

TEST_F(transport_test, two_sockets_of_one_system_lead_to_two_actors) {
  echo_server server{path};
  auto other_path = folder.path() / "other";
  auto other = server.system.spawn(doubler);
  auto socket = publish(server.system, other, other_path);
  ASSERT_TRUE(socket) << socket.error().message;
  system_config config;
  caf::actor_system client{config};
  auto first = connect<echo_actor>(client, path);
  auto second = connect<doubler_actor>(client, other_path);
  ASSERT_TRUE(first) << first.error().message;
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(ask(client, *first, "hello"), "hello");
  caf::anon_send_exit(other, caf::exit_reason::kill);
}

TEST_F(transport_test, a_tcp_port_of_the_same_system_stays_as_it_is) {
  std::optional<echo_server> server{path};
  auto port = server->system.middleman().publish(server->actor, 0, "127.0.0.1");
  ASSERT_TRUE(port);
  server->socket = failure(ec::stopped, "closed");
  system_config config;
  caf::actor_system client{config};
  auto found = client.middleman().remote_actor<echo_actor>("127.0.0.1", *port);
  ASSERT_TRUE(found);
  EXPECT_EQ(ask(client, *found, "hello"), "hello");
}

TEST_F(transport_test, an_actor_on_the_network_thread_answers_from_there) {
  using where_actor = caf::typed_actor<caf::result<bool>(std::string)>;
  auto where = +[](where_actor::pointer self, std::string word) {
    auto& loop = self->system().middleman().backend();
    return where_actor::behavior_type{[&loop, word](const std::string& x) {
      return x == word && loop.thread_id() == std::this_thread::get_id();
    }};
  };
  system_config config;
  caf::actor_system system{config};
  auto actor = spawn_on_network_thread(system, where, "hello");
  caf::scoped_actor self{system};
  auto answer = false;
  request(self, actor, 10s, "hello")
    .receive([&](bool x) { answer = x; }, [](const caf::error&) {});
  EXPECT_TRUE(answer);
  caf::anon_send_exit(actor, caf::exit_reason::kill);
}

// -- endpoints without a name ------------------------------------------------

TEST_F(transport_test,
       a_process_with_the_other_end_gets_through_a_private_endpoint) {
  system_config server_config;
  caf::actor_system system{server_config};
  auto actor = system.spawn(echo);
  auto before = test::named_sockets();
  auto endpoint = open_private_endpoint(system, actor);
  ASSERT_TRUE(endpoint) << endpoint.error().message;
  std::vector<unique_fd> ends;
  for (int i = 0; i < 3; ++i)
    ends.push_back(endpoint->new_connection().value());
  for (int i = 0; i < 3; ++i) {
    system_config config;
    caf::actor_system client{config};
    auto found = connect<echo_actor>(client, std::move(ends[i]));
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ(ask(client, *found, std::to_string(i)), std::to_string(i));
  }
  EXPECT_EQ(test::named_sockets(), before);
  caf::anon_send_exit(actor, caf::exit_reason::kill);
}

/// Has received *held*, and its socket shows nothing of it.
class holding_link : public byte_link {
public:
  explicit holding_link(std::string held)
    : held_(std::move(held)), ends_(*socket_pair("")) {}

  std::optional<std::size_t> receive(std::span<std::byte> buffer) override {
    auto size =
      held_.copy(reinterpret_cast<char*>(buffer.data()), buffer.size());
    held_.erase(0, size);
    return size;
  }

  std::optional<std::size_t> send(std::span<const std::byte> bytes) override {
    return bytes.size();
  }

  void finish() noexcept override {}
  bool holds_data() const noexcept override { return true; }
  int socket() const noexcept override { return fd_; }
  int release_socket() noexcept override { return ends_.first.release(); }

private:
  std::string held_;
  std::pair<unique_fd, unique_fd> ends_;
  int fd_ = ends_.first.get();
};

TEST_F(transport_test, what_a_link_holds_already_is_read_without_an_event) {
  system_config server_config;
  caf::actor_system system{server_config};
  auto actor = system.spawn(echo);
  auto endpoint = open_private_endpoint(system, actor);
  ASSERT_TRUE(endpoint) << endpoint.error().message;
  auto end = endpoint->new_connection().value();
  std::string greeting(4096, '\0');
  auto size = ::recv(end.get(), greeting.data(), greeting.size(), 0);
  ASSERT_GT(size, 0);
  greeting.resize(static_cast<std::size_t>(size));
  system_config config;
  caf::actor_system client{config};
  auto found =
    connect<echo_actor>(client, std::make_unique<holding_link>(greeting));
  EXPECT_TRUE(found) << found.error().message;
  caf::anon_send_exit(actor, caf::exit_reason::kill);
}

TEST_F(transport_test, noise_at_a_private_endpoint_ends_its_connection_only) {
  std::promise<std::string> reason;
  system_config server_config;
  caf::actor_system system{server_config};
  auto actor = system.spawn(echo);
  auto endpoint = open_private_endpoint(
    system, actor, [&](const std::string& x) { reason.set_value(x); });
  ASSERT_TRUE(endpoint) << endpoint.error().message;
  auto noisy = endpoint->new_connection().value();
  auto good = endpoint->new_connection().value();
  send_all(noisy, caf::byte_buffer(1024, caf::byte_buffer::value_type{0xff}));
  await_close(noisy);
  EXPECT_NE(reason.get_future().get().find("handshake"), std::string::npos);
  system_config config;
  caf::actor_system client{config};
  auto found = connect<echo_actor>(client, std::move(good));
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(ask(client, *found, "hello"), "hello");
  caf::anon_send_exit(actor, caf::exit_reason::kill);
}

TEST_F(transport_test, a_private_endpoint_leaves_nothing_behind) {
  auto before = open_descriptors();
  {
    system_config server_config;
    caf::actor_system system{server_config};
    auto actor = system.spawn(echo);
    auto endpoint = open_private_endpoint(system, actor);
    ASSERT_TRUE(endpoint) << endpoint.error().message;
    auto unused = endpoint->new_connection();
    auto used = endpoint->new_connection().value();
    system_config config;
    caf::actor_system client{config};
    EXPECT_FALSE(connect<doubler_actor>(client, std::move(used)));
    caf::anon_send_exit(actor, caf::exit_reason::kill);
  }
  EXPECT_EQ(open_descriptors(), before);
}

// -- what cannot work is an error ---------------------------------------------

TEST_F(transport_test, an_actor_of_another_interface_is_an_error) {
  echo_server server{path};
  system_config config;
  caf::actor_system client{config};
  auto found = connect<doubler_actor>(client, path);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ec::protocol);
  EXPECT_NE(found.error().message.find("interface"), std::string::npos);
}

TEST_F(transport_test, a_path_without_a_listener_is_an_error) {
  system_config config;
  caf::actor_system client{config};
  auto found = connect<echo_actor>(client, path);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ec::protocol);
  EXPECT_NE(found.error().message.find(path.string()), std::string::npos);
}

TEST_F(transport_test, a_socket_is_not_opened_where_it_cannot_be_private) {
  echo_server server{path};
  auto twice = publish(server.system, server.actor, path);
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().code, ec::conflict);
  auto too_long =
    publish(server.system, server.actor, folder.path() / std::string(108, 'x'));
  ASSERT_FALSE(too_long);
  EXPECT_EQ(too_long.error().code, ec::invalid_config);
  chmod(folder.path().c_str(), 0711);
  auto open = publish(server.system, server.actor, folder.path() / "open");
  ASSERT_FALSE(open);
  EXPECT_EQ(open.error().code, ec::invalid_config);
}

TEST_F(transport_test, a_path_may_be_relative_to_the_current_folder) {
  auto before = fs::current_path();
  fs::current_path(folder.path());
  {
    echo_server server{"run"};
    fs::current_path(before);
    ASSERT_TRUE(server.socket) << server.socket.error().message;
    EXPECT_EQ(server.socket->path(), path);
    EXPECT_TRUE(fs::exists(path));
  }
  EXPECT_FALSE(fs::exists(path)) << "removed, although the folder changed";
}

TEST_F(transport_test, a_forked_process_leaves_the_socket_as_it_is) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer does not work in what a process with "
                  "several threads forked";
#endif
  echo_server server{path};
  auto status =
    test::run_in_child([&] { server.socket = failure(ec::stopped, ""); });
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(fs::exists(path));
}

TEST_F(transport_test, a_killed_server_gives_way_to_the_next_one) {
  auto killed = serve_in_child(path);
  ASSERT_GT(killed, 0);
  kill(killed, SIGKILL);
  exit_code_of(killed);
  ASSERT_TRUE(fs::exists(path));
  echo_server server{path};
  ASSERT_TRUE(server.socket) << server.socket.error().message;
  system_config config;
  caf::actor_system client{config};
  auto found = connect<echo_actor>(client, path);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(ask(client, *found, "hello"), "hello");
}

TEST_F(transport_test, a_server_that_ends_leaves_the_socket_of_the_next_one) {
  std::optional<echo_server> first{std::in_place, path};
  ASSERT_TRUE(first->socket) << first->socket.error().message;
  fs::remove(path);
  echo_server next{path};
  ASSERT_TRUE(next.socket) << next.socket.error().message;
  first.reset();
  EXPECT_TRUE(fs::exists(path));
}

TEST_F(transport_test, of_many_that_take_over_a_socket_one_gets_it) {
  auto killed = serve_in_child(path);
  ASSERT_GT(killed, 0);
  kill(killed, SIGKILL);
  exit_code_of(killed);
  int go[2], end[2];
  ASSERT_EQ(pipe(go), 0);
  ASSERT_EQ(pipe(end), 0);
  std::vector<pid_t> takers;
  for (int i = 0; i < 8; ++i)
    takers.push_back(in_child([&] {
      char byte;
      if (read(go[0], &byte, 1) != 1)
        return 1;
      auto taken = listen_at(path);
      if (!taken)
        return taken.error().code == ec::conflict ? 2 : 3;
      // Held until all others have tried.
      return read(end[0], &byte, 1) == 1 ? 0 : 1;
    }));
  ASSERT_EQ(write(go[1], "12345678", 8), 8);
  int refused = 0;
  for (int i = 0; i < 7; ++i) {
    int status = 0;
    ASSERT_GT(wait(&status), 0);
    refused += WIFEXITED(status) && WEXITSTATUS(status) == 2;
  }
  EXPECT_EQ(refused, 7);
  ASSERT_EQ(write(end[1], "e", 1), 1);
  int status = 0;
  ASSERT_GT(wait(&status), 0);
  EXPECT_EQ(status, 0);
  for (int fd : {go[0], go[1], end[0], end[1]})
    close(fd);
}

TEST_F(transport_test, a_file_that_is_not_a_socket_is_not_taken_over) {
  test::write_bytes(path, "mine");
  echo_server server{path};
  ASSERT_FALSE(server.socket);
  EXPECT_EQ(server.socket.error().code, ec::conflict);
  EXPECT_EQ(test::bytes_of(path), "mine");
}

TEST_F(transport_test, a_stopped_server_is_a_timeout) {
  auto server = serve_in_child(path);
  ASSERT_GT(server, 0);
  kill(server, SIGSTOP);
  waitpid(server, nullptr, WUNTRACED);
  {
    system_config config;
    caf::actor_system client{config};
    auto found = connect<echo_actor>(client, path, 100ms);
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().code, ec::timeout);
  }
  kill(server, SIGKILL);
  EXPECT_EQ(exit_code_of(server), 128 + SIGKILL);
}

TEST_F(transport_test, a_killed_peer_is_down) {
  auto server = serve_in_child(path);
  ASSERT_GT(server, 0);
  system_config config;
  caf::actor_system client{config};
  auto found = connect<echo_actor>(client, path);
  ASSERT_TRUE(found) << found.error().message;
  caf::scoped_actor self{client};
  self->monitor(*found);
  kill(server, SIGKILL);
  self->receive([&](const caf::down_msg& x) {
    EXPECT_EQ(x.reason, caf::exit_reason::remote_link_unreachable);
  });
  EXPECT_EQ(exit_code_of(server), 128 + SIGKILL);
}

// -- strangers ----------------------------------------------------------------

TEST_F(transport_test, a_process_of_another_user_is_refused_unread) {
  if (geteuid() != 0)
    GTEST_SKIP() << "needs root to act as another user";
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  auto stranger = in_child([&] {
    char byte;
    if (read(go[0], &byte, 1) != 1 || setgroups(0, nullptr) != 0
        || setgid(65534) != 0 || setuid(65534) != 0)
      return 1;
    auto socket = connect_raw(path);
    if (!socket)
      return 2;
    // Not even the server's greeting comes before the end.
    return recv(socket.get(), &byte, 1, 0) <= 0 ? 0 : 3;
  });
  echo_server server{path};
  ASSERT_TRUE(server.socket) << server.socket.error().message;
  // Two endpoints that are open here, to reach the third.
  chmod(folder.path().c_str(), 0711);
  chmod(path.c_str(), 0666);
  ASSERT_EQ(write(go[1], "g", 1), 1);
  EXPECT_EQ(exit_code_of(stranger), 0);
  EXPECT_EQ(server.refused(), (std::vector<std::string>{
                                "a connection of another user is refused"}));
  close(go[0]);
  close(go[1]);
}

TEST_F(transport_test, noise_ends_its_connection_and_nothing_else) {
  std::promise<std::string> reason;
  system_config server_config;
  caf::actor_system system{server_config};
  auto actor = system.spawn(echo);
  auto endpoint = publish(system, actor, path,
                          [&](const std::string& x) { reason.set_value(x); });
  ASSERT_TRUE(endpoint) << endpoint.error().message;
  caf::byte_buffer noise(1024 * 1024);
  std::minstd_rand random{7};
  for (auto& x : noise)
    x = static_cast<caf::byte_buffer::value_type>(random());
  noise[0] = caf::byte_buffer::value_type{0xff}; // no operation of BASP
  auto socket = connect_raw(path);
  send_all(socket, noise);
  await_close(socket);
  EXPECT_NE(reason.get_future().get().find("handshake"), std::string::npos);
  system_config config;
  caf::actor_system client{config};
  auto found = connect<echo_actor>(client, path);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(ask(client, *found, "hello"), "hello");
  caf::anon_send_exit(actor, caf::exit_reason::kill);
}

TEST_F(transport_test, what_a_frame_announces_is_not_allocated) {
  using caf::io::basp::message_type;
  constexpr std::uint32_t gigabyte = 1u << 30;
  echo_server server{path};
  caf::byte_buffer node;
  auto sink = serializer_to(node);
  auto stranger = caf::make_node_id(1, caf::hashed_node_id::host_id_type{});
  ASSERT_TRUE(sink.apply(stranger));
  auto greeting = frame(message_type::client_handshake,
                        static_cast<std::uint32_t>(node.size()), node);
  auto before = resident_bytes();
  for (int i = 0; i < 20; ++i) {
    // As the first frame, and from a peer that has greeted properly.
    auto early = connect_raw(path);
    send_all(early, frame(message_type::client_handshake, gigabyte));
    await_close(early);
    auto late = connect_raw(path);
    send_all(late, greeting);
    send_all(late, frame(message_type::direct_message, gigabyte));
    await_close(late);
  }
  // Up to the limit a peer may announce, yet memory follows what it sends.
  std::vector<unique_fd> idle;
  for (int i = 0; i < 20; ++i) {
    idle.push_back(connect_raw(path));
    send_all(idle.back(), greeting);
    send_all(idle.back(), frame(message_type::direct_message, 4u << 20));
  }
  system_config config;
  caf::actor_system client{config};
  auto found = connect<echo_actor>(client, path);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(ask(client, *found, "hello"), "hello");
  EXPECT_EQ(server.refused().size(), 40u);
  EXPECT_LT(resident_bytes() - before, 8u << 20);
}

TEST_F(transport_test, nothing_is_left_behind) {
  auto before = open_descriptors();
  {
    echo_server server{path};
    system_config config;
    caf::actor_system client{config};
    auto found = connect<echo_actor>(client, path);
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_FALSE(connect<doubler_actor>(client, path));
    EXPECT_TRUE(fs::exists(path));
  }
  EXPECT_FALSE(fs::exists(path));
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(transport_test, a_socket_that_closes_at_once_is_gone) {
  auto before = open_descriptors();
  {
    echo_server server{path};
    // Held up, the network thread finds the opening and the closing together.
    std::promise<void> gate;
    auto opened = gate.get_future().share();
    server.system.middleman().run_later([opened] { opened.wait(); });
    EXPECT_TRUE(publish(server.system, server.actor, folder.path() / "brief"));
    gate.set_value();
  }
  EXPECT_EQ(open_descriptors(), before);
}

} // namespace

} // namespace troupe::internal

int main(int argc, char** argv) {
  caf::core::init_global_meta_objects();
  caf::io::middleman::init_global_meta_objects();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
