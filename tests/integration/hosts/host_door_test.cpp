// How agents get through a driver's door to its actors, from before those are
// there until after the end of the run.

#include "troupe/trainers/host_door.hpp"

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <caf/scoped_actor.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <gtest/gtest.h>

#include "tests/actors/door/door_fixture.hpp"
#include "tests/support/own_system.hpp"
#include "tests/support/tcp.hpp"
#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/door/dial.hpp"
#include "troupe/actors/door/ticket.hpp"
#include "troupe/actors/door/tls_link.hpp"
#include "troupe/actors/transport/connect.hpp"
#include "troupe/actors/transport/private_endpoint.hpp"
#include "troupe/actors/transport/resumable_link.hpp"

namespace troupe::internal::test {

namespace {

using namespace std::chrono_literals;

using echo_actor = caf::typed_actor<caf::result<std::string>(std::string)>;

echo_actor::behavior_type echo() {
  return {[](std::string& x) { return std::move(x); }};
}

/// An agent's side of a link.
std::unique_ptr<resumable_link> link_over(std::unique_ptr<tls_channel> first) {
  return std::make_unique<resumable_link>(make_link(std::move(first)),
                                          std::make_shared<link_switch>(),
                                          resume_options{});
}

class host_door_test : public testing::Test {
protected:
  host_door_test() {
    driver.emplace();
    actor = driver->spawn(echo);
    endpoint.emplace(*open_private_endpoint(*driver, actor, {}));
    door = *host_door::open("run1", {}, 10s, {});
    own = *parse_ticket(door->ticket_text(), host_role::agent);
    own.addresses = {"127.0.0.1"};
  }

  ~host_door_test() override {
    door.reset();
    caf::anon_send_exit(actor, caf::exit_reason::kill);
  }

  dialed_channel dialed(std::optional<link_id> resumes = {}) {
    dial_args args;
    args.resumes = resumes;
    auto result = dial(own, args);
    EXPECT_TRUE(result) << result.error().message;
    return result ? std::move(*result) : dialed_channel{};
  }

  /// Asks the driver's actor over *link*.
  static std::string ask(std::unique_ptr<byte_link> link) {
    own_system agent;
    auto found = connect<echo_actor>(agent, std::move(link));
    if (!found)
      return found.error().message;
    std::string result;
    caf::scoped_actor self{agent};
    request(self, *found, door_patience, std::string{"hello"})
      .receive([&](std::string& x) { result = std::move(x); },
               [&](const caf::error& x) { result = caf::to_string(x); });
    return result;
  }

  std::optional<own_system> driver;
  echo_actor actor;
  std::optional<private_endpoint> endpoint;
  std::unique_ptr<host_door> door;
  ticket own;
};

TEST_F(host_door_test, a_break_before_the_run_began_is_resumed) {
  auto first = dialed();
  auto link = link_over(std::move(first.channel));
  auto next = dialed(first.link);
  ASSERT_TRUE(next.channel);
  ASSERT_TRUE(link->resume(make_link(std::move(next.channel))));
  ASSERT_TRUE(door->admit(*endpoint, {}));
  EXPECT_EQ(ask(std::move(link)), "hello");
}

TEST_F(host_door_test, an_agent_that_got_no_answer_comes_again) {
  // The door has accepted it, and the agent has not read that.
  auto lost = dialed();
  ASSERT_TRUE(door->admit(*endpoint, {}));
  EXPECT_EQ(ask(link_over(dialed().channel)), "hello");
}

// An agent calls again after a while, and its driver may take no one for long.
TEST_F(host_door_test, keeps_no_connection_of_an_agent_that_has_called_again) {
  std::atomic<int> seconds = 0;
  auto now = [&seconds] {
    return std::chrono::steady_clock::time_point{
      std::chrono::seconds{seconds.load()}};
  };
  auto late = *host_door::open("run2", {}, 10s, {}, now);
  own = *parse_ticket(late->ticket_text(), host_role::agent);
  own.addresses = {"127.0.0.1"};
  auto first = dialed();
  // The door takes one after the other: it has the first one by then.
  auto second = dialed();
  seconds = 21;
  auto last = dialed();
  EXPECT_EQ(hear(*first.channel), "");
  EXPECT_EQ(first.channel->failure().cause, channel_fault::closed);
  ASSERT_TRUE(late->admit(*endpoint, {}));
  EXPECT_EQ(ask(link_over(std::move(last.channel))), "hello");
}

// Each of many agents that call again leaves a connection behind.
TEST_F(host_door_test, keeps_the_latest_of_more_connections_than_may_wait) {
  auto small =
    *host_door::open("run2", {}, 10s, {}, std::chrono::steady_clock::now, 1);
  own = *parse_ticket(small->ticket_text(), host_role::agent);
  own.addresses = {"127.0.0.1"};
  auto first = dialed();
  auto last = dialed();
  EXPECT_EQ(hear(*first.channel), "");
  EXPECT_EQ(first.channel->failure().cause, channel_fault::closed);
  ASSERT_TRUE(small->admit(*endpoint, {}));
  EXPECT_EQ(ask(link_over(std::move(last.channel))), "hello");
}

class closed_connection_test : public host_door_test {
protected:
  /// Whether the driver still has a link after *close* has closed its
  /// connection over *port* in good order; without it, the agent does.
  bool outlives_close(std::uint16_t port, const std::function<void()>& close) {
    own.port = port;
    auto first = dialed();
    EXPECT_NE(hear(*first.channel), ""); // It is the run's.
    close ? close() : void(::shutdown(first.channel->socket(), SHUT_WR));
    while (!hear(*first.channel).empty())
      ;
    dial_args args;
    args.resumes = first.link;
    return dial(own, args).has_value();
  }
};

TEST_F(closed_connection_test, is_the_end_of_an_agent_to_which_it_led) {
  ASSERT_TRUE(door->admit(*endpoint, {}));
  EXPECT_FALSE(outlives_close(own.port, {}));
}

TEST_F(closed_connection_test, is_resumed_if_it_led_to_a_relay) {
  ASSERT_TRUE(door->admit(*endpoint, {}));
  breaking_relay relay{own.port};
  EXPECT_TRUE(outlives_close(relay.port(), [&] { relay.close_all(); }));
}

// A frozen host acknowledges all that is sent to it.
TEST_F(host_door_test, no_agent_holds_the_driver_back_at_the_end) {
  ASSERT_TRUE(door->admit(*endpoint, {}));
  auto frozen = dialed();
  EXPECT_NE(hear(*frozen.channel), ""); // It is the run's.
  door->end_connections(10ms);
  while (!hear(*frozen.channel).empty())
    ;
  EXPECT_EQ(frozen.channel->failure().cause, channel_fault::closed);
  // The system of a driver ends after its last connection.
  door.reset();
  endpoint.reset();
  caf::anon_send_exit(actor, caf::exit_reason::kill);
  actor = nullptr;
  driver.reset();
}

// An agent dials all addresses of its driver at once.
TEST_F(host_door_test, says_nothing_of_connections_that_end_before_they_greet) {
  std::promise<std::string> first_note;
  auto is_first = true;
  auto note = [&](std::string text) {
    if (std::exchange(is_first, false))
      first_note.set_value(std::move(text));
  };
  auto other = *host_door::open("run2", {}, 10s, note);
  auto port = parse_ticket(other->ticket_text(), host_role::agent)->port;
  connect_to_port(port);
  auto stranger = connect_to_port(port);
  ASSERT_EQ(::send(stranger.get(), "garbage\n", 8, MSG_NOSIGNAL), 8);
  auto text = first_note.get_future();
  ASSERT_EQ(text.wait_for(door_patience), std::future_status::ready);
  EXPECT_EQ(text.get().find("a connection was refused (1 so far): 127.0.0.1: "
                            "it does not speak TLS"),
            0u);
}

TEST_F(host_door_test, takes_no_agents_after_the_end) {
  ASSERT_TRUE(door->admit(*endpoint, {}));
  door->end_connections(10ms);
  auto late = dialed();
  EXPECT_EQ(hear(*late.channel), "");
  EXPECT_EQ(late.channel->failure().cause, channel_fault::closed);
}

TEST_F(host_door_test, waits_at_the_end_until_agents_have_left) {
  ASSERT_TRUE(door->admit(*endpoint, {}));
  auto first = dialed();
  ASSERT_TRUE(first.channel);
  auto agent = std::make_unique<own_system>();
  auto found = connect<echo_actor>(*agent, link_over(std::move(first.channel)));
  ASSERT_TRUE(found) << found.error().message;
  auto ended = std::async(
    std::launch::async, [&] { door->end_connections(std::chrono::hours{1}); });
  // One that is closed shows that the end has begun.
  for (auto is_taken = true; is_taken;) {
    auto late = dialed();
    ASSERT_TRUE(late.channel);
    is_taken = !hear(*late.channel).empty();
  }
  {
    caf::scoped_actor self{*agent};
    request(self, *found, door_patience, std::string{"hello"})
      .receive([](const std::string& x) { EXPECT_EQ(x, "hello"); },
               [](const caf::error& x) { ADD_FAILURE() << to_string(x); });
  }
  EXPECT_EQ(ended.wait_for(0s), std::future_status::timeout);
  *found = nullptr;
  agent.reset();
  ended.wait();
}

} // namespace

} // namespace troupe::internal::test
