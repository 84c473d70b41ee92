// Messages of a service to ranks on another host.

#include <gmock/gmock.h>

#include "tests/integration/hosts/hosts_fixture.hpp"
#include "tests/integration/run/mailbox_loop.hpp"
#include "tests/support/own_system.hpp"
#include "troupe/trainers/run_parts.hpp"

namespace troupe::internal::test {

namespace {

/// Asks all ranks: small messages, and one of 8 MiB.
std::string asked_all(caf::scoped_actor& self, const ranks_changed& known) {
  for (auto& [rank, handle] : known.ranks) {
    for (auto i = 0; i < 300; ++i) {
      auto answer = ask(self, handle, question{i, {}});
      if (!answer)
        return answer.error().message;
      if (answer->rank != rank || answer->number != 2 * i)
        return concat("rank ", rank, " answers ", answer->number, " to ", i);
    }
    std::vector<std::byte> data(std::size_t{8} << 20, std::byte{7});
    auto answer = ask(self, handle, shared_bytes::copy_of(data));
    if (!answer)
      return answer.error().message;
    if (answer->number != 8 || answer->rank != 7)
      return concat("rank ", rank, " got ", answer->number, " MiB, the last ",
                    answer->rank);
  }
  return "whole";
}

} // namespace

/// A service whose run has rank 1 on another host.
int be_service(const std::string& folder) {
  own_system system;
  train_options options;
  options.scaling = {.num_workers = 2, .agents = 1};
  options.run = run_with_agents(folder);
  options.run.failure.max_failures = 1;
  auto run =
    data_parallel_trainer{answering_loop, loop_plan{}, options}.start(system);
  if (!run) {
    tell(folder, run.error().message);
    return 1;
  }
  {
    caf::scoped_actor self{system};
    rank_watch watch{system, run->control()};
    auto before = watch.all();
    tell(folder, asked_all(self, before));
    send_anonymous(before.ranks[1], question{1, "die"});
    for (auto i = 0; i < 100; ++i) // They would end the loop of a later rank.
      send_anonymous(before.ranks[1], question{-1, {}});
    auto after = watch.all(1);
    for (auto& [rank, handle] : before.ranks)
      if (ask(self, handle, question{3, {}}))
        tell(folder, concat("rank ", rank, " of attempt 0 answers"));
    tell(folder, asked_all(self, after));
    for (auto& [rank, handle] : after.ranks)
      send_anonymous(handle, question{-1, {}});
  }
  tell_result(folder, run->wait());
  return 0;
}

/// A service whose rank on another host sends more than fits into a message.
int be_flooded_service(const std::string& folder) {
  own_system system;
  train_options options;
  options.scaling = {.num_workers = 2, .agents = 1};
  options.run = run_with_agents(folder);
  auto run =
    data_parallel_trainer{answering_loop, loop_plan{}, options}.start(system);
  if (!run) {
    tell(folder, run.error().message);
    return 1;
  }
  {
    rank_watch watch{system, run->control()};
    auto known = watch.all();
    send_anonymous(known.ranks[1], flood{known.ranks[0]});
    known.ranks.clear();
  }
  auto outcome = run->wait();
  for (auto& line : run_access{*run}.monitor().take_notes())
    if (line.find("the connection is closed") != line.npos)
      tell(folder, line);
  tell_result(folder, outcome);
  return 0;
}

namespace {

class hosts_mailbox_test : public hosts_test {};

TEST_P(hosts_mailbox_test,
       a_rank_on_another_host_is_asked_and_after_a_restart) {
  auto driver = start(0, {own_program(), "--service", folder_.path().string()});
  auto agent = start_agent(1);
  EXPECT_EQ(next_line(), "whole");
  EXPECT_EQ(next_line(), "whole") << "after the restart";
  EXPECT_EQ(result_line(), "result finished 2 ");
  EXPECT_EQ(driver->wait(), 0);
  EXPECT_EQ(agent->wait(), 0);
}

TEST_P(hosts_mailbox_test, a_rank_that_sends_too_much_is_cut_off_with_a_note) {
  auto driver =
    start(0, {own_program(), "--flooded-service", folder_.path().string()});
  auto agent = start_agent(1);
  EXPECT_THAT(next_line(),
              testing::ContainsRegex("host .*: the connection is closed "
                                     "because of a frame of .* bytes"));
  EXPECT_THAT(result_line(), testing::HasSubstr("result errored"));
  EXPECT_EQ(driver->wait(), 0);
  EXPECT_EQ(agent->wait(), 75);
}

INSTANTIATE_TEST_SUITE_P(hosts, hosts_mailbox_test,
                         testing::Values(where::here, where::namespaces),
                         name_of);

} // namespace

} // namespace troupe::internal::test

int main(int argc, char** argv) {
  troupe::register_messages<caf::id_block::mailbox_test>();
  troupe::init(argc, argv);
  if (argc > 2 && std::string{argv[1]} == "--service")
    return troupe::internal::test::be_service(argv[2]);
  if (argc > 2 && std::string{argv[1]} == "--flooded-service")
    return troupe::internal::test::be_flooded_service(argv[2]);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
