#include <future>
#include <numeric>
#include <optional>

#include <caf/event_based_actor.hpp>
#include <caf/init_global_meta_objects.hpp>
#include <caf/io/middleman.hpp>

#include "tests/integration/transport_fixture.hpp"
#include "tests/support/named_sockets.hpp"
#include "tests/support/own_system.hpp"
#include "troupe/actors/transport/byte_link.hpp"
#include "troupe/actors/transport/network_thread.hpp"
#include "troupe/actors/transport/private_endpoint.hpp"

namespace troupe::internal::test {

// -- actors meet --------------------------------------------------------------

TEST_F(transport_test, an_actor_answers_another_system) {
  echo_server server{path};
  own_system client;
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
      own_system system;
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
  own_system client;
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
  own_system client;
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
  own_system client;
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
  own_system system;
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
  own_system system;
  auto actor = system.spawn(echo);
  auto before = named_sockets();
  auto endpoint = open_private_endpoint(system, actor);
  ASSERT_TRUE(endpoint) << endpoint.error().message;
  std::vector<unique_fd> ends;
  for (int i = 0; i < 3; ++i)
    ends.push_back(endpoint->new_connection().value());
  for (int i = 0; i < 3; ++i) {
    own_system client;
    auto found = connect<echo_actor>(client, std::move(ends[i]));
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ(ask(client, *found, std::to_string(i)), std::to_string(i));
  }
  EXPECT_EQ(named_sockets(), before);
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
  bool was_closed() const noexcept override { return false; }
  bool holds_data() const noexcept override { return true; }
  int socket() const noexcept override { return fd_; }
  int release_socket() noexcept override { return ends_.first.release(); }

private:
  std::string held_;
  std::pair<unique_fd, unique_fd> ends_;
  int fd_ = ends_.first.get();
};

TEST_F(transport_test, what_a_link_holds_already_is_read_without_an_event) {
  own_system system;
  auto actor = system.spawn(echo);
  auto endpoint = open_private_endpoint(system, actor);
  ASSERT_TRUE(endpoint) << endpoint.error().message;
  auto end = endpoint->new_connection().value();
  std::string greeting(4096, '\0');
  auto size = ::recv(end.get(), greeting.data(), greeting.size(), 0);
  ASSERT_GT(size, 0);
  greeting.resize(static_cast<std::size_t>(size));
  own_system client;
  auto found =
    connect<echo_actor>(client, std::make_unique<holding_link>(greeting));
  EXPECT_TRUE(found) << found.error().message;
  caf::anon_send_exit(actor, caf::exit_reason::kill);
}

TEST_F(transport_test, noise_at_a_private_endpoint_ends_its_connection_only) {
  std::promise<std::string> reason;
  own_system system;
  auto actor = system.spawn(echo);
  auto endpoint = open_private_endpoint(
    system, actor, [&](const std::string& x) { reason.set_value(x); });
  ASSERT_TRUE(endpoint) << endpoint.error().message;
  auto noisy = endpoint->new_connection().value();
  auto good = endpoint->new_connection().value();
  send_all(noisy, caf::byte_buffer(1024, caf::byte_buffer::value_type{0xff}));
  await_close(noisy);
  EXPECT_NE(reason.get_future().get().find("handshake"), std::string::npos);
  own_system client;
  auto found = connect<echo_actor>(client, std::move(good));
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(ask(client, *found, "hello"), "hello");
  caf::anon_send_exit(actor, caf::exit_reason::kill);
}

TEST_F(transport_test, a_private_endpoint_leaves_nothing_behind) {
  auto before = open_descriptors();
  {
    own_system system;
    auto actor = system.spawn(echo);
    auto endpoint = open_private_endpoint(system, actor);
    ASSERT_TRUE(endpoint) << endpoint.error().message;
    auto unused = endpoint->new_connection();
    auto used = endpoint->new_connection().value();
    own_system client;
    EXPECT_FALSE(connect<doubler_actor>(client, std::move(used)));
    caf::anon_send_exit(actor, caf::exit_reason::kill);
  }
  EXPECT_EQ(open_descriptors(), before);
}

} // namespace troupe::internal::test

int main(int argc, char** argv) {
  caf::core::init_global_meta_objects();
  caf::io::middleman::init_global_meta_objects();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
