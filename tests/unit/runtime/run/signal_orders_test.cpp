#include "troupe/runtime/run/signal_orders.hpp"

#include <gtest/gtest.h>

namespace troupe::internal {
namespace {

using std::chrono::milliseconds;
using agent_step = agent_signals::step;

constexpr agent_signals::time_point first_look{};
constexpr signals_seen no_signals;
constexpr signals_seen asked_to_preempt{interrupt::preempt, 1};
constexpr signals_seen asked_to_stop{interrupt::stop, 1};

// SO-1
TEST(end_orders_test, passes_each_request_on_once) {
  end_orders orders;
  EXPECT_FALSE(orders.is_more(interrupt::none));
  EXPECT_TRUE(orders.is_more(interrupt::preempt));
  EXPECT_TRUE(orders.is_more(interrupt::preempt)) << "it was not passed on";
  orders.passed_on(interrupt::preempt);
  EXPECT_EQ(orders.last(), interrupt::preempt);
  EXPECT_FALSE(orders.is_more(interrupt::preempt));
}

// SO-1
TEST(end_orders_test, passes_a_stop_on_after_a_preemption_not_the_reverse) {
  end_orders orders;
  orders.passed_on(interrupt::preempt);
  EXPECT_TRUE(orders.is_more(interrupt::stop));
  orders.passed_on(interrupt::stop);
  EXPECT_FALSE(orders.is_more(interrupt::preempt));
  EXPECT_FALSE(orders.is_more(interrupt::stop));
  EXPECT_EQ(orders.last(), interrupt::stop);
}

TEST(end_orders_test, a_run_that_was_asked_to_end_has_not_failed) {
  EXPECT_EQ(status_after(interrupt::none), run_status_kind::errored);
  EXPECT_EQ(status_after(interrupt::preempt), run_status_kind::preempted);
  EXPECT_EQ(status_after(interrupt::stop), run_status_kind::aborted);
}

TEST(signals_seen_test, only_the_second_signal_repeats_the_first) {
  EXPECT_FALSE(no_signals.repeated());
  EXPECT_FALSE(asked_to_stop.repeated());
  EXPECT_TRUE((signals_seen{interrupt::preempt, 2}.repeated()));
}

// SO-2
TEST(signals_in_time_test, signals_after_the_outcome_come_too_late) {
  signals_in_time signals;
  signals.outcome_is_fixed(asked_to_preempt);
  signals.outcome_is_fixed({interrupt::stop, 2});
  EXPECT_EQ(signals.asked(), interrupt::preempt);
  EXPECT_EQ(signals.heeded(run_status_kind::finished), interrupt::preempt);
}

// SO-2
TEST(signals_in_time_test, a_run_that_had_to_leave_heeds_all_signals) {
  signals_in_time signals;
  signals.outcome_is_fixed(no_signals);
  EXPECT_EQ(signals.heeded(run_status_kind::finished), interrupt::none);
  EXPECT_EQ(signals.heeded(run_status_kind::errored), interrupt::none);
  EXPECT_EQ(signals.heeded(run_status_kind::preempted), interrupt::stop);
  EXPECT_EQ(signals.heeded(run_status_kind::aborted), interrupt::stop);
}

TEST(signals_in_time_test, a_signal_since_the_outcome_hurries) {
  signals_in_time signals;
  EXPECT_FALSE(signals.is_hurried(2)) << "the outcome is open";
  EXPECT_EQ(signals.asked(), interrupt::none);
  signals.outcome_is_fixed(asked_to_preempt);
  EXPECT_FALSE(signals.is_hurried(1));
  EXPECT_TRUE(signals.is_hurried(2));
}

// SO-3
TEST(agent_signals_test, gives_notice_once_for_a_preemption) {
  agent_signals agent;
  EXPECT_EQ(agent.next(no_signals, first_look), agent_step::wait);
  EXPECT_EQ(agent.next(asked_to_preempt, first_look), agent_step::give_notice);
  EXPECT_FALSE(agent.has_given_notice());
  agent.gave_notice(first_look, std::nullopt);
  EXPECT_TRUE(agent.has_given_notice());
  EXPECT_EQ(agent.next(asked_to_preempt, first_look + std::chrono::hours{1}),
            agent_step::wait);
}

// SO-3
TEST(agent_signals_test, leaves_at_once_for_a_stop) {
  agent_signals agent;
  EXPECT_EQ(agent.next(asked_to_stop, first_look), agent_step::leave);
  agent.gave_notice(first_look, std::nullopt);
  EXPECT_EQ(agent.next(asked_to_stop, first_look), agent_step::leave);
}

TEST(agent_signals_test, leaves_for_the_second_signal_of_any_kind) {
  agent_signals agent;
  constexpr signals_seen twice{interrupt::preempt, 2};
  // Both came before it looked.
  EXPECT_EQ(agent.next(twice, first_look), agent_step::give_notice);
  agent.gave_notice(first_look, std::nullopt);
  EXPECT_EQ(agent.next(twice, first_look), agent_step::leave);
}

TEST(agent_signals_test, leaves_when_the_sender_of_the_signal_kills_it) {
  agent_signals agent;
  agent.gave_notice(first_look, milliseconds{500});
  EXPECT_EQ(agent.next(asked_to_preempt, first_look + milliseconds{499}),
            agent_step::wait);
  EXPECT_EQ(agent.next(asked_to_preempt, first_look + milliseconds{500}),
            agent_step::leave);
}

} // namespace
} // namespace troupe::internal
