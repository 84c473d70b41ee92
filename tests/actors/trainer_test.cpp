// The trainer beside a rank's loop.

#include <gtest/gtest.h>

#include "tests/support/played_ranks.hpp"

namespace troupe::internal::test {

class trainer_test : public testing::Test {
protected:
  trainer_test() {
    agent = system.spawn(host_agent, host_agent_args{});
    actor = system.spawn(trainer, trainer_args{3, 1, agent, control});
    system.settle();
  }

  void tell(std::uint64_t attempt, const std::string& why) {
    send_anonymous(actor, stop_loop{attempt, {ec::stopped, why}});
    system.settle();
  }

  stepped_system system;
  std::shared_ptr<loop_control> control = std::make_shared<loop_control>();
  host_agent_actor agent;
  trainer_actor actor;
};

TEST_F(trainer_test, ends_the_loop_when_asked_to) {
  EXPECT_FALSE(control->ended());
  tell(3, "a peer has failed");
  EXPECT_TRUE(control->ended());
  EXPECT_EQ(control->reason(), (error{ec::stopped, "a peer has failed"}));
}

TEST_F(trainer_test, the_first_reason_counts) {
  tell(3, "first");
  tell(3, "second");
  EXPECT_EQ(control->reason().message, "first");
}

TEST_F(trainer_test, ignores_what_concerns_another_attempt) {
  tell(2, "too late");
  tell(4, "too early");
  EXPECT_FALSE(control->ended());
}

TEST_F(trainer_test, ends_the_loop_when_the_agent_of_its_host_is_gone) {
  caf::anon_send_exit(agent, caf::exit_reason::kill);
  system.settle();
  EXPECT_EQ(control->reason(),
            (error{ec::protocol, "rank 1: the driver is gone"}));
}

} // namespace troupe::internal::test
