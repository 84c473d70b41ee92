// Actors of two hosts: CAF's network protocol through the door of a run.

#include <atomic>
#include <future>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <caf/event_based_actor.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <gtest/gtest.h>

#include "tests/actors/door/door_fixture.hpp"
#include "tests/support/own_system.hpp"
#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/door/dial.hpp"
#include "troupe/actors/door/tls_link.hpp"
#include "troupe/actors/protocol/messages.hpp"
#include "troupe/actors/protocol/type_ids.hpp"
#include "troupe/actors/transport/connect.hpp"
#include "troupe/actors/transport/private_endpoint.hpp"
#include "troupe/actors/transport/resumable_link.hpp"

namespace troupe::internal::test {

namespace {

using namespace std::chrono_literals;

using ledger_actor =
  caf::typed_actor<caf::result<report_committed>(commit_batch),
                   caf::result<std::string>(std::string),
                   caf::result<void>(caf::strong_actor_ptr)>;

/// Confirms batches, repeats what it is sent, and passes on whom it meets.
ledger_actor::behavior_type ledger(ledger_actor::pointer,
                                   std::promise<caf::strong_actor_ptr>* met) {
  return {
    [](const commit_batch& x) {
      return report_committed{x.batch.index, std::nullopt, std::nullopt};
    },
    [](std::string& x) { return std::move(x); },
    [met](const caf::strong_actor_ptr& x) { met->set_value(x); },
  };
}

/// A driver's system behind a door, and an agent's that dials it.
class hosts_transport_test : public door_test {
protected:
  hosts_transport_test() {
    auto made = open_private_endpoint(
      driver, actor, [this](const std::string& x) { refused.set_value(x); });
    endpoint.emplace(std::move(*made));
    open([this](door_args& x) {
      x.on_client = [this](std::unique_ptr<tls_channel> accepted,
                           const door_greeting&) {
        client_socket = accepted->socket();
        endpoint->add(make_link(std::move(accepted)));
      };
    });
  }

  ~hosts_transport_test() override {
    opened.reset(); // It calls the endpoint.
    caf::anon_send_exit(actor, caf::exit_reason::kill);
  }

  expected<dialed_channel> dialed() const {
    return dial(ticket{{"127.0.0.1"}, port(), "run1", certificates.agent});
  }

  /// The ledger, as *system* of another host sees it.
  expected<ledger_actor> connected(caf::actor_system& system) const {
    TROUPE_TRY(auto found, dialed());
    return connect<ledger_actor>(system, make_link(std::move(found.channel)));
  }

  std::string ask(caf::actor_system& system, const ledger_actor& whom,
                  const std::string& text) const {
    std::string result;
    caf::scoped_actor self{system};
    request(self, whom, door_patience, text)
      .receive([&](std::string& x) { result = std::move(x); },
               [&](const caf::error& x) { result = caf::to_string(x); });
    return result;
  }

  std::atomic<int> client_socket = -1; // of the latest accepted
  std::promise<std::string> refused;
  std::promise<caf::strong_actor_ptr> introduced;
  own_system driver;
  ledger_actor actor = driver.spawn(ledger, &introduced);
  std::optional<private_endpoint> endpoint;
};

TEST_F(hosts_transport_test, a_message_of_the_protocol_reaches_another_host) {
  own_system agent;
  auto found = connected(agent);
  ASSERT_TRUE(found) << found.error().message;
  commit_batch batch;
  batch.batch.index = 7;
  caf::scoped_actor self{agent};
  std::optional<report_committed> answer;
  request(self, *found, door_patience, batch)
    .receive([&](report_committed& x) { answer = std::move(x); },
             [](const caf::error& x) { ADD_FAILURE() << caf::to_string(x); });
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->index, 7u);
}

TEST_F(hosts_transport_test, a_message_larger_than_any_buffer_arrives_whole) {
  own_system agent;
  auto found = connected(agent);
  ASSERT_TRUE(found) << found.error().message;
  std::string text(8 * 1024 * 1024, ' ');
  std::iota(text.begin(), text.end(), '\0');
  EXPECT_TRUE(ask(agent, *found, text) == text);
}

TEST_F(hosts_transport_test, strangers_at_the_door_disturb_no_connection) {
  own_system agent;
  auto found = connected(agent);
  ASSERT_TRUE(found) << found.error().message;
  for (int i = 0; i < 300; ++i) {
    auto stranger = connect_to_port(port());
    ::send(stranger.get(), "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL);
    ASSERT_EQ(ask(agent, *found, std::to_string(i)), std::to_string(i));
  }
  EXPECT_EQ(record.refusals(300).size(), 300u);
}

TEST_F(hosts_transport_test, several_agents_are_served) {
  std::vector<std::unique_ptr<own_system>> agents;
  std::vector<ledger_actor> found;
  for (int i = 0; i < 4; ++i) {
    agents.push_back(std::make_unique<own_system>());
    auto x = connected(*agents.back());
    ASSERT_TRUE(x) << x.error().message;
    found.push_back(*x);
  }
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_EQ(ask(*agents[i], found[i], std::to_string(i)), std::to_string(i));
}

TEST_F(hosts_transport_test, actors_behind_a_broken_connection_are_down) {
  own_system agent;
  auto found = connected(agent);
  ASSERT_TRUE(found) << found.error().message;
  caf::scoped_actor self{agent};
  self->monitor(*found);
  ::shutdown(client_socket, SHUT_RDWR);
  self->receive([](const caf::down_msg& x) {
    EXPECT_EQ(x.reason, caf::exit_reason::remote_link_unreachable);
  });
}

// The other side may be frozen: it has no part in this.
TEST_F(hosts_transport_test, a_process_that_is_cut_off_is_down_on_both_sides) {
  own_system lost, kept;
  auto found = connected(lost);
  auto other = connected(kept);
  ASSERT_TRUE(found && other);
  caf::scoped_actor peer{lost};
  peer->monitor(*found);
  send(peer, *found, caf::actor_cast<caf::strong_actor_ptr>(peer));
  auto proxy = introduced.get_future().get();
  caf::scoped_actor self{driver};
  self->monitor(proxy);
  cut_off(driver, proxy->node());
  auto is_unreachable = [](const caf::down_msg& x) {
    EXPECT_EQ(x.reason, caf::exit_reason::remote_link_unreachable);
  };
  self->receive(is_unreachable);
  peer->receive(is_unreachable);
  EXPECT_EQ(ask(kept, *other, "hello"), "hello");
  cut_off(driver, lost.node()); // It is gone.
  EXPECT_EQ(ask(kept, *other, "again"), "again");
}

/// Connections through a relay, over links that outlive them.
class broken_link_test : public hosts_transport_test {
protected:
  broken_link_test() {
    opened.reset();
    open([this](door_args& x) {
      x.on_client = [this](std::unique_ptr<tls_channel> accepted,
                           const door_greeting& greeting) {
        if (greeting.resumes)
          return driver_side->connect(make_link(std::move(accepted)));
        endpoint->add(std::make_unique<resumable_link>(
          make_link(std::move(accepted)), driver_side, resume_options{}));
      };
      x.has_link = [this](const link_id&) { return !is_given_up; };
    });
    relay.emplace(port());
  }

  ~broken_link_test() override {
    for (auto& x : dials)
      x.wait();
  }

  expected<dialed_channel> dialed_over_relay(std::optional<link_id> resumes) {
    dial_args args;
    args.resumes = resumes;
    return dial(
      ticket{{"127.0.0.1"}, relay->port(), "run1", certificates.agent}, args);
  }

  expected<ledger_actor> connected_over_relay(caf::actor_system& system) {
    TROUPE_TRY(auto found, dialed_over_relay(std::nullopt));
    resume_options options;
    options.on_break = [this, link = found.link] {
      ++breaks;
      dials.push_back(std::async(std::launch::async, [this, link] {
        auto next = dialed_over_relay(link);
        agent_side->connect(next ? make_link(std::move(next->channel))
                                 : nullptr);
      }));
    };
    return connect<ledger_actor>(system, std::make_unique<resumable_link>(
                                           make_link(std::move(found.channel)),
                                           agent_side, std::move(options)));
  }

  std::optional<breaking_relay> relay;
  std::shared_ptr<link_switch> driver_side = std::make_shared<link_switch>();
  std::shared_ptr<link_switch> agent_side = std::make_shared<link_switch>();
  std::atomic<bool> is_given_up = false;
  std::atomic<int> breaks = 0;
  std::vector<std::future<void>> dials; // made on the agent's network thread
};

TEST_F(broken_link_test, messages_arrive_once_although_the_connection_breaks) {
  own_system agent;
  auto found = connected_over_relay(agent);
  ASSERT_TRUE(found) << found.error().message;
  std::string text(50'000, 'x');
  for (int i = 0; i < 300; ++i) {
    if (i % 10 == 5)
      relay->break_all();
    auto sent = std::to_string(i) + text;
    ASSERT_TRUE(ask(agent, *found, sent) == sent) << i;
  }
  EXPECT_GT(breaks, 0);
}

TEST_F(broken_link_test, ends_if_the_driver_has_given_it_up) {
  own_system agent;
  auto found = connected_over_relay(agent);
  ASSERT_TRUE(found) << found.error().message;
  caf::scoped_actor self{agent};
  self->monitor(*found);
  is_given_up = true;
  relay->break_all();
  self->receive([](const caf::down_msg& x) {
    EXPECT_EQ(x.reason, caf::exit_reason::remote_link_unreachable);
  });
}

TEST_F(broken_link_test, is_not_dialed_again_if_the_driver_cuts_it_off) {
  own_system agent;
  auto found = connected_over_relay(agent);
  ASSERT_TRUE(found) << found.error().message;
  caf::scoped_actor self{agent};
  self->monitor(*found);
  send(self, *found, caf::actor_cast<caf::strong_actor_ptr>(self));
  is_given_up = true;
  cut_off(driver, introduced.get_future().get()->node());
  self->receive([](const caf::down_msg& x) {
    EXPECT_EQ(x.reason, caf::exit_reason::remote_link_unreachable);
  });
  EXPECT_EQ(breaks, 0);
}

TEST_F(hosts_transport_test, a_broken_frame_ends_its_connection_only) {
  auto broken = dialed();
  ASSERT_TRUE(broken) << broken.error().message;
  EXPECT_TRUE(say(*broken->channel, std::string(64, '\xff')));
  EXPECT_NE(refused.get_future().get().find("handshake"), std::string::npos);
  while (!hear(*broken->channel).empty())
    ;
  own_system agent;
  auto found = connected(agent);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(ask(agent, *found, "hello"), "hello");
}

} // namespace

} // namespace troupe::internal::test
