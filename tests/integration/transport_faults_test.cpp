// What cannot work is an error, and strangers at a socket do no harm.

#include <csignal>
#include <future>
#include <optional>
#include <random>

#include <grp.h>
#include <sys/stat.h>

#include <caf/node_id.hpp>

#include "tests/integration/transport_fixture.hpp"
#include "tests/support/child.hpp"
#include "tests/support/own_system.hpp"
#include "tests/support/sanitized.hpp"

namespace troupe::internal::test {

TEST_F(transport_test, an_actor_of_another_interface_is_an_error) {
  echo_server server{path};
  own_system client;
  auto found = connect<doubler_actor>(client, path);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ec::protocol);
  EXPECT_NE(found.error().message.find("interface"), std::string::npos);
}

TEST_F(transport_test, a_path_without_a_listener_is_an_error) {
  own_system client;
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
  TROUPE_SKIP_FORKS_UNDER_TSAN();
  echo_server server{path};
  auto status = run_in_child([&] { server.socket = failure(ec::stopped, ""); });
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
  own_system client;
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
  write_bytes(path, "mine");
  echo_server server{path};
  ASSERT_FALSE(server.socket);
  EXPECT_EQ(server.socket.error().code, ec::conflict);
  EXPECT_EQ(bytes_of(path), "mine");
}

TEST_F(transport_test, a_stopped_server_is_a_timeout) {
  auto server = serve_in_child(path);
  ASSERT_GT(server, 0);
  kill(server, SIGSTOP);
  waitpid(server, nullptr, WUNTRACED);
  {
    own_system client;
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
  own_system client;
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
  own_system system;
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
  own_system client;
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
  own_system client;
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
    own_system client;
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

} // namespace troupe::internal::test
