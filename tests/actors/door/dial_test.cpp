#include "troupe/actors/door/dial.hpp"

#include <future>
#include <optional>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>

#include <gmock/gmock.h>

#include "tests/actors/door/door_fixture.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal::test {

namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

class dial_test : public door_test {
protected:
  ticket ticket_for(std::uint16_t port,
                    std::vector<std::string> addresses = {"127.0.0.1"}) const {
    return {std::move(addresses), port, "run1", certificates.agent};
  }

  /// Short tries, within *limit*.
  static dial_args impatient(std::chrono::milliseconds limit = 100ms) {
    dial_args result;
    result.per_address = 30ms;
    result.first_pause = 1ms;
    result.longest_pause = 10ms;
    result.limit = limit;
    return result;
  }
};

TEST_F(dial_test, gets_through_the_door) {
  open();
  auto dialed = dial(ticket_for(port()));
  ASSERT_TRUE(dialed) << dialed.error().message;
  EXPECT_EQ(dialed->address, "127.0.0.1");
  auto accepted = record.next_client();
  ASSERT_TRUE(accepted);
  EXPECT_TRUE(say(*accepted, "welcome"));
  EXPECT_EQ(hear(*dialed->channel), "welcome");
}

TEST_F(dial_test, is_one_client_for_all_addresses_that_lead_to_the_door) {
  open();
  auto dialed = dial(
    ticket_for(port(), {"198.51.100.1", "127.0.0.1", "no-such-host.invalid",
                        "127.0.0.2", "localhost", "127.0.0.3"}));
  ASSERT_TRUE(dialed) << dialed.error().message;
  EXPECT_TRUE(record.next_client());
  opened.reset();
  EXPECT_EQ(record.waiting_clients(), 0u);
}

TEST_F(dial_test, resolves_names) {
  open();
  auto dialed = dial(ticket_for(port(), {"localhost"}));
  ASSERT_TRUE(dialed) << dialed.error().message;
  EXPECT_EQ(dialed->address, "localhost");
}

TEST_F(dial_test, reaches_a_door_that_opens_later) {
  std::optional<plain_listener> reserved{std::in_place};
  auto later = reserved->port();
  auto dialed =
    std::async(std::launch::async, [&] { return dial(ticket_for(later)); });
  reserved->accept(); // It has tried.
  reserved.reset();
  open([later](door_args& x) { x.port = later; });
  auto result = dialed.get();
  EXPECT_TRUE(result) << result.error().message;
}

TEST_F(dial_test, tries_again_if_the_door_closes_before_its_answer) {
  plain_listener listener;
  auto own = certificates.driver_identity();
  auto dialed = std::async(std::launch::async,
                           [&] { return dial(ticket_for(listener.port())); });
  std::unique_ptr<tls_channel> channel;
  std::vector<std::string> greetings;
  for (int i = 0; i < 2; ++i) {
    channel.reset();
    channel =
      *tls_channel::make(own, listener.accept(), tls_channel::side::server);
    finish_step(*channel, [&] { return channel->shake_hands(); });
    greetings.push_back(hear(*channel));
  }
  EXPECT_TRUE(say(*channel, "T"));
  auto result = dialed.get();
  ASSERT_TRUE(result) << result.error().message;
  auto here = endpoint::local(result->channel->socket())->bytes();
  EXPECT_EQ(greetings[1], text_of({result->link, false, here}));
  // The door may have accepted the first one: it is another link.
  auto end_of_link = 1 + result->link.size();
  EXPECT_NE(greetings[0].substr(0, end_of_link),
            greetings[1].substr(0, end_of_link));
}

TEST_F(dial_test, resumes_a_link_that_the_driver_has) {
  const link_id mine{std::byte{7}}, other{std::byte{8}};
  open([&](door_args& x) {
    x.has_link = [&](const link_id& id) { return id == mine; };
  });
  auto args = impatient(door_patience);
  args.resumes = mine;
  EXPECT_TRUE(dial(ticket_for(port()), args));
  args.resumes = other;
  auto refused = dial(ticket_for(port()), args);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ec::protocol);
  EXPECT_FALSE(record.refusals(1).empty());
}

TEST_F(dial_test, gives_a_link_up_whose_driver_has_ended) {
  std::optional<plain_listener> none{std::in_place};
  auto free_port = none->port();
  none.reset();
  auto args = impatient(door_patience);
  args.resumes = link_id{};
  auto ended = dial(ticket_for(free_port), args);
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, ec::protocol);
}

// Its limit was over long ago, which no event can be the cause of.
TEST_F(dial_test, has_time_for_one_more_try_after_a_standstill) {
  auto args = impatient(-1min);
  plain_listener silent;
  auto late = dial(ticket_for(silent.port()), args);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ec::timeout);
  EXPECT_THAT(late.error().message, HasSubstr("no TLS handshake within"));
  open([](door_args& x) { x.has_link = [](const link_id&) { return true; }; });
  args.per_address = door_patience;
  args.resumes = link_id{};
  auto dialed = dial(ticket_for(port()), args);
  EXPECT_TRUE(dialed) << dialed.error().message;
}

TEST_F(dial_test, names_the_cause_of_each_address) {
  std::optional<plain_listener> none{std::in_place};
  auto free_port = none->port();
  none.reset();
  auto dialed =
    dial(ticket_for(free_port, {"127.0.0.1", "127.0.0.2"}), impatient());
  ASSERT_FALSE(dialed);
  EXPECT_EQ(dialed.error().code, ec::timeout);
  EXPECT_THAT(dialed.error().message,
              HasSubstr("within 100 ms:\n  127.0.0.1: Connection refused\n  "
                        "127.0.0.2: Connection refused"));
}

TEST_F(dial_test, gives_an_address_up_that_does_not_answer) {
  // Once its queue is full, the kernel drops what asks for a connection.
  plain_listener full{0};
  std::vector<unique_fd> queue;
  for (int i = 0; i < 4; ++i) {
    auto& x = queue.emplace_back(
      ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(full.port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::connect(x.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
  }
  auto dialed = dial(ticket_for(full.port()), impatient());
  ASSERT_FALSE(dialed);
  EXPECT_EQ(dialed.error().code, ec::timeout);
  EXPECT_THAT(dialed.error().message,
              HasSubstr("127.0.0.1: no answer within 30 ms"));
}

TEST_F(dial_test, gives_a_name_up_that_cannot_be_resolved) {
  auto dialed = dial(ticket_for(1, {"no-such-host.invalid"}), impatient());
  ASSERT_FALSE(dialed);
  EXPECT_EQ(dialed.error().code, ec::timeout);
  EXPECT_THAT(dialed.error().message, HasSubstr("\n  no-such-host.invalid: "));
}

TEST_F(dial_test, gives_a_service_up_that_says_nothing) {
  plain_listener silent;
  auto dialed = dial(ticket_for(silent.port()), impatient());
  ASSERT_FALSE(dialed);
  EXPECT_EQ(dialed.error().code, ec::timeout);
  EXPECT_THAT(dialed.error().message, HasSubstr("no TLS handshake within"));
}

TEST_F(dial_test, does_not_take_another_service_for_the_driver) {
  plain_listener listener;
  auto dialed = std::async(std::launch::async,
                           [&] { return dial(ticket_for(listener.port())); });
  auto stranger = listener.accept();
  ::send(stranger.get(), "SSH-2.0-OpenSSH_9.2\r\n", 21, MSG_NOSIGNAL);
  // It comes back after having left this one.
  auto next = listener.accept();
  EXPECT_TRUE(next);
  stranger.reset();
  next.reset();
  auto port = listener.port();
  listener = plain_listener{};
  open([port](door_args& x) { x.port = port; });
  auto result = dialed.get();
  EXPECT_TRUE(result) << result.error().message;
}

TEST_F(dial_test, does_not_take_the_driver_of_another_run_for_its_own) {
  certificates.driver = door_certificates{}.driver;
  open();
  wake_event stop;
  dial_args args;
  args.stop = stop.fd();
  auto dialed = std::async(std::launch::async,
                           [&] { return dial(ticket_for(port()), args); });
  // It comes back after having left for the first time.
  EXPECT_EQ(record.refusals(2).at(1).cause, channel_fault::unknown_authority);
  stop.notify();
  auto result = dialed.get();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ec::stopped);
  EXPECT_THAT(result.error().message, HasSubstr("127.0.0.1: its certificate is "
                                                "of another run"));
}

TEST_F(dial_test, ends_when_its_driver_refuses_it) {
  open();
  certificate_terms terms;
  terms.name = "agent.run1";
  terms.until = std::chrono::system_clock::now() - 1min;
  terms.from = terms.until - 1h;
  certificates.agent = *certificates.authority.issue(terms);
  auto dialed = dial(ticket_for(port())); // Would wait for minutes otherwise.
  ASSERT_FALSE(dialed);
  EXPECT_EQ(dialed.error().code, ec::protocol);
  EXPECT_THAT(dialed.error().message, HasSubstr("has expired"));
  EXPECT_EQ(record.first_cause(), channel_fault::expired);
}

TEST_F(dial_test, stops_when_asked_to) {
  plain_listener silent;
  wake_event stop;
  dial_args args;
  args.stop = stop.fd();
  auto dialed = std::async(
    std::launch::async, [&] { return dial(ticket_for(silent.port()), args); });
  auto tried = silent.accept();
  stop.notify();
  auto result = dialed.get();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ec::stopped);
}

TEST_F(dial_test, refuses_a_ticket_whose_key_is_not_its_own) {
  certificates.agent.key = certificates.driver.key;
  EXPECT_EQ(dial(ticket_for(1)).error().code, ec::corrupt);
}

} // namespace

} // namespace troupe::internal::test
