#include "troupe/trainers/mail_queue.hpp"

#include <thread>

#include <gmock/gmock.h>

#include "troupe/actors/protocol/register_messages.hpp"

namespace troupe::internal {
namespace {

using testing::ElementsAre;

class mail_queue_test : public testing::Test {
protected:
  static void SetUpTestSuite() { register_messages(); }

  static mail of(std::uint64_t id, abort_run x) {
    return {id, false, false, caf::make_message(std::move(x))};
  }

  static mail other(std::uint64_t id) {
    return {id, false, false, caf::make_message(get_status{})};
  }

  std::vector<std::uint64_t> given_back;
  mail_queue queue{
    8, [this](std::uint64_t places) { given_back.push_back(places); }};
  const caf::type_id_t stops = caf::type_id_v<abort_run>;
  const caf::type_id_t statuses = caf::type_id_v<get_status>;
};

TEST_F(mail_queue_test, gives_messages_of_a_type_in_order) {
  queue.push(of(1, {"a"}));
  queue.push(other(2));
  queue.push(of(3, {"b"}));
  EXPECT_EQ(queue.size(), 3u);
  EXPECT_EQ(queue.take(stops)->id, 1u);
  EXPECT_EQ(queue.take(stops)->id, 3u);
  EXPECT_FALSE(queue.take(stops));
  EXPECT_TRUE(queue.is_ready(statuses));
  EXPECT_EQ(queue.take(statuses)->id, 2u);
  EXPECT_EQ(queue.size(), 0u);
}

TEST_F(mail_queue_test, counts_those_dropped_and_those_that_it_cannot_read) {
  queue.note_dropped(3);
  queue.note_unread();
  queue.note_dropped(4);
  EXPECT_EQ(queue.dropped(), 5u);
}

TEST_F(mail_queue_test, gives_places_back_as_messages_are_taken) {
  for (std::uint64_t id = 0; id < 5; ++id)
    queue.push(other(id));
  for (auto i = 0; i < 5; ++i)
    queue.take(statuses);
  EXPECT_THAT(given_back, ElementsAre(2, 2, 1));
}

TEST_F(mail_queue_test, a_handler_gets_what_came_before_it_and_what_comes) {
  queue.push(other(1));
  std::vector<std::uint64_t> handled;
  queue.handle(statuses, [&](mail& x) { handled.push_back(x.id); });
  queue.push(other(2));
  queue.push(of(3, {}));
  EXPECT_THAT(handled, ElementsAre(1, 2));
  EXPECT_EQ(queue.size(), 1u);
  queue.close();
  queue.push(other(4));
  EXPECT_THAT(handled, ElementsAre(1, 2));
}

TEST_F(mail_queue_test, a_wait_ends_with_a_message) {
  std::jthread sender{[&] {
    queue.push(of(1, {}));
    queue.push(other(2));
  }};
  queue.wait(statuses, std::nullopt);
  EXPECT_EQ(queue.take(statuses)->id, 2u);
}

TEST_F(mail_queue_test, a_wait_ends_with_the_loop) {
  std::jthread trainer{[&] { queue.end(); }};
  queue.wait(statuses, std::nullopt);
  EXPECT_TRUE(queue.is_ready(stops));
}

TEST_F(mail_queue_test, a_wait_with_a_limit_ends_without_a_message) {
  queue.push(of(1, {}));
  queue.wait(statuses, mail_queue::clock::now());
  EXPECT_FALSE(queue.is_ready(statuses));
}

} // namespace
} // namespace troupe::internal
