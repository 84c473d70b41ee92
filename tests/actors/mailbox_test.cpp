// Mailboxes of ranks: who learns of them, and what passes through them.

#include "tests/actors/driver_fixture.hpp"
#include "troupe/actors/mailbox_relay.hpp"

namespace troupe::internal::test {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Key;

namespace {

/// What a postbox has received.
struct box_record {
  std::vector<mail> mails;
  std::vector<std::uint64_t> dropped;
};

postbox_actor::behavior_type recorded_box(postbox_actor::pointer,
                                          std::shared_ptr<box_record> record) {
  return {
    [record](mail& x) { record->mails.push_back(std::move(x)); },
    [record](const mail_dropped& x) { record->dropped.push_back(x.messages); },
  };
}

rank_observer_actor::behavior_type
recorded_observer(rank_observer_actor::pointer,
                  std::shared_ptr<std::vector<ranks_changed>> heard) {
  return {[heard](const ranks_changed& x) { heard->push_back(x); }};
}

} // namespace

class mailbox_test : public driver_test {
protected:
  /// Rank *rank* opens its mailbox; the answer is its relay.
  std::shared_ptr<answer<caf::actor>> open(int rank, std::uint64_t capacity = 2,
                                           std::uint64_t attempt = 0,
                                           int world_size = 2) {
    return system.ask<caf::actor>(
      ranks.agent, open_mailbox{attempt, rank, world_size, capacity},
      boxes[rank]);
  }

  void SetUp() override {
    for (auto rank : {0, 1})
      boxes[rank] = system.spawn(
        recorded_box, records[rank] = std::make_shared<box_record>());
  }

  void follow() {
    observer = system.spawn(recorded_observer, heard);
    auto now = system.ask<ranks_changed>(driver, follow_ranks{}, observer);
    ASSERT_TRUE(now->value);
    heard->push_back(*now->value);
  }

  std::map<int, postbox_actor> boxes;
  std::map<int, std::shared_ptr<box_record>> records;
  std::shared_ptr<std::vector<ranks_changed>> heard =
    std::make_shared<std::vector<ranks_changed>>();
  rank_observer_actor observer;
};

TEST_F(mailbox_test, observers_learn_of_each_mailbox_and_of_the_end) {
  run();
  follow();
  EXPECT_THAT(heard->back().ranks, IsEmpty());
  open(1);
  EXPECT_THAT(heard->back().ranks, ElementsAre(Key(1)));
  EXPECT_FALSE(heard->back().is_complete());
  auto relay = open(0);
  ASSERT_TRUE(relay->value);
  EXPECT_THAT(heard->back().ranks, ElementsAre(Key(0), Key(1)));
  EXPECT_TRUE(heard->back().is_complete());
  EXPECT_EQ(heard->back().ranks[0], *relay->value);
  for (auto& x : *heard)
    EXPECT_EQ(x.run_id, store->description().id);
  finish();
  system.settle();
  EXPECT_THAT(heard->back().ranks, IsEmpty());
}

TEST_F(mailbox_test, an_observer_that_comes_later_learns_of_all) {
  run();
  open(0);
  open(1);
  follow();
  EXPECT_TRUE(heard->back().is_complete());
  stop();
}

TEST_F(mailbox_test, an_attempt_with_more_ranks_is_complete_with_all_of_them) {
  run();
  follow();
  EXPECT_EQ(heard->back().world_size, 2);
  open(0, 2, 0, 3);
  open(1, 2, 0, 3);
  EXPECT_EQ(heard->back().world_size, 3);
  EXPECT_FALSE(heard->back().is_complete());
  stop();
}

TEST_F(mailbox_test, an_exit_message_to_a_handle_changes_nothing) {
  run();
  follow();
  auto relay = *open(0)->value;
  caf::anon_send_exit(relay, caf::exit_reason::user_shutdown);
  system.settle();
  EXPECT_THAT(heard->back().ranks, ElementsAre(Key(0)));
  EXPECT_TRUE(system.ask<metrics>(relay, metrics{{"x", 1}})->pending());
  EXPECT_EQ(records[0]->mails.size(), 1u);
  stop();
}

TEST_F(mailbox_test, a_rank_without_messages_learns_at_once_of_a_dropped_one) {
  run();
  auto relay = *open(0)->value;
  send_anonymous(relay, metrics{}, 7);
  system.settle();
  EXPECT_THAT(records[0]->dropped, ElementsAre(1u));
  stop();
}

TEST_F(mailbox_test, a_rank_of_another_attempt_opens_none) {
  run();
  follow();
  auto relay = open(0, 2, 7);
  EXPECT_EQ(relay->failure.code, ec::stopped);
  EXPECT_EQ(heard->size(), 1u);
  stop();
}

TEST_F(mailbox_test, the_restarted_ranks_have_other_mailboxes) {
  config.failure.max_failures = 1;
  run();
  follow();
  auto before = open(0);
  kill();
  system.settle();
  EXPECT_THAT(heard->back().ranks, IsEmpty());
  auto late = system.ask<void>(*before->value, metrics{});
  EXPECT_FALSE(late->pending());
  EXPECT_TRUE(late->failure);
  ranks.attempt = 1;
  ranks.rise_all(2);
  auto after = open(0, 2, 1);
  ASSERT_TRUE(after->value);
  EXPECT_NE(*after->value, *before->value);
  EXPECT_EQ(heard->back().attempt, 1u);
  EXPECT_THAT(heard->back().ranks, ElementsAre(Key(0)));
  EXPECT_THAT(records[0]->mails, IsEmpty());
  stop();
}

TEST_F(mailbox_test, a_rank_that_is_gone_is_left_out) {
  run();
  follow();
  open(0);
  open(1);
  caf::anon_send_exit(boxes[1], caf::exit_reason::kill);
  system.settle();
  EXPECT_THAT(heard->back().ranks, ElementsAre(Key(0)));
  stop();
}

TEST_F(mailbox_test, answers_reach_who_asked) {
  run();
  auto relay = *open(0)->value;
  auto first = system.ask<metrics>(relay, metrics{{"x", 1}});
  auto second = system.ask<metrics>(relay, metrics{{"x", 2}});
  auto& mails = records[0]->mails;
  ASSERT_EQ(mails.size(), 2u);
  EXPECT_TRUE(mails[0].wants_answer);
  EXPECT_EQ(mails[1].body.get_as<metrics>(0), (metrics{{"x", 2}}));
  send_anonymous(
    relay, mail_answer{mails[1].id, {}, caf::make_message(metrics{{"y", 2}})});
  send_anonymous(relay,
                 mail_answer{mails[0].id, {ec::invalid_argument, "no"}, {}});
  system.settle();
  ASSERT_TRUE(second->value);
  EXPECT_EQ(*second->value, (metrics{{"y", 2}}));
  EXPECT_EQ(first->failure, (error{ec::invalid_argument, "no"}));
  stop();
}

TEST_F(mailbox_test, a_full_mailbox_says_so_until_the_loop_takes_messages) {
  run();
  auto relay = *open(1)->value;
  send_anonymous(relay, metrics{{"x", 1}});
  send_anonymous(relay, metrics{{"x", 2}});
  system.settle();
  auto refused = system.ask<metrics>(relay, metrics{{"x", 3}});
  EXPECT_EQ(refused->failure.code, ec::mailbox_full);
  EXPECT_NE(refused->failure.message.find("rank 1 of attempt 0"),
            std::string::npos);
  send_anonymous(relay, metrics{{"x", 4}});
  system.settle();
  EXPECT_EQ(records[1]->mails.size(), 2u);
  send_anonymous(relay, mail_taken{1});
  system.settle();
  EXPECT_THAT(records[1]->dropped, ElementsAre(1u));
  auto taken = system.ask<metrics>(relay, metrics{{"x", 5}});
  EXPECT_TRUE(taken->pending());
  EXPECT_EQ(records[1]->mails.size(), 3u);
  stop();
}

TEST_F(mailbox_test, requests_of_a_rank_that_ends_are_answered) {
  run();
  auto relay = *open(0)->value;
  auto waiting = system.ask<metrics>(relay, metrics{{"x", 3}});
  EXPECT_TRUE(waiting->pending());
  finish();
  system.settle();
  EXPECT_EQ(waiting->failure.code, ec::stopped);
}

} // namespace troupe::internal::test
