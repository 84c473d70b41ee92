// The code of docs/actors.md, compiled and run: the page's blocks are pieces of
// this file, but for those with tensors.

#include <chrono>
#include <future>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include <caf/actor_system.hpp>
#include <caf/scoped_actor.hpp>
#include <gtest/gtest.h>
#include <troupe/actors.hpp>

#include "tests/support/page_code.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/actors/compat/messaging.hpp"

struct question {
  int number = 0;
};

TROUPE_INSPECT(question, number)

struct reply {
  int rank = 0;
  int number = 0;
};

TROUPE_INSPECT(reply, rank, number)

struct ping {};

TROUPE_INSPECT(ping)

CAF_BEGIN_TYPE_ID_BLOCK(my_service, ::troupe::first_user_type_id)
CAF_ADD_TYPE_ID(my_service, (question))
CAF_ADD_TYPE_ID(my_service, (reply))
CAF_ADD_TYPE_ID(my_service, (ping))
CAF_END_TYPE_ID_BLOCK(my_service)

int main(int argc, char** argv) {
  troupe::register_messages<caf::id_block::my_service>();
  troupe::init(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

namespace actors_page {

void loop(troupe::train_context& context) {
  troupe::rank_mailbox mailbox{context, {.capacity = 64}};
  // Answered beside the loop.
  mailbox.on<ping>([&](const ping&) { return reply{context.rank()}; });
  for (;;) {
    auto asked = mailbox.receive<question>(); // or try_receive, or with a limit
    asked.answer(reply{context.rank(), 2 * asked.value.number});
  }
}

using namespace troupe;
using namespace std::chrono_literals;

/// The first complete set of ranks that the service's actor learns of.
std::promise<ranks_changed> known;

void use(const ranks_changed& x) {
  static auto is_known = false;
  if (x.is_complete() && !std::exchange(is_known, true))
    known.set_value(x);
}

void warn(const caf::error& x) {
  std::cerr << to_string(x) << '\n';
}

rank_observer_actor::behavior_type feeder(rank_observer_actor::pointer self,
                                          run_control_actor run) {
  self->request(run, 10s, follow_ranks{}, rank_observer_actor{self})
    .then(use, warn);
  return {[](const ranks_changed& x) {
    use(x); // x.attempt, x.ranks: rank to handle, x.is_complete()
  }};
}

class actors_page_test : public testing::Test {
protected:
  int complain(const std::string& why) {
    ADD_FAILURE() << why;
    return 1;
  }

  int run_service(const troupe::data_parallel_trainer& trainer,
                  const troupe::fs::path& socket) {
    troupe::register_messages();
    // Or a config of your own, which loads caf::io::middleman.
    troupe::system_config settings;
    caf::actor_system system{settings};
    auto run = trainer.start(system);
    if (!run)
      return complain(run.error().message);
    ask_rank(system, run->control());
    auto door = troupe::publish(system, run->control(), socket);
    if (!door)
      return complain(door.error().message);
    return stop_from_elsewhere(socket, *run);
  }

  void ask_rank(caf::actor_system& system, const run_control_actor& run) {
    auto watching = system.spawn(feeder, run);
    auto ranks = known.get_future().get().ranks;
    caf::scoped_actor self{system};
    internal::request(self, ranks.at(0), 60s, question{21})
      .receive([](const reply& x) { EXPECT_EQ(x.number, 42); },
               [&](const caf::error& x) { complain(to_string(x)); });
    internal::request(self, ranks.at(0), 60s, ping{})
      .receive([](const reply& x) { EXPECT_EQ(x.rank, 0); },
               [&](const caf::error& x) { complain(to_string(x)); });
    caf::anon_send_exit(watching, caf::exit_reason::user_shutdown);
  }

  int stop_from_elsewhere(const troupe::fs::path& socket, run_handle& mine) {
    troupe::system_config settings;
    caf::actor_system system{settings};
    auto run = troupe::connect<troupe::run_control_actor>(system, socket);
    if (!run)
      return complain(run.error().message);
    internal::send_anonymous(*run, abort_run{"the test has seen enough"});
    EXPECT_EQ(mine.wait().status, run_status_kind::aborted);
    return 0;
  }
};

TEST_F(actors_page_test, the_service_asks_its_rank_and_another_one_stops_it) {
  internal::test::temporary_folder storage;
  internal::test::private_folder door;
  data_parallel_trainer trainer{
    loop,
    {.scaling = {.num_workers = 1},
     .run = {.name = "run", .storage_path = storage.path(), .quiet = true}}};
  EXPECT_EQ(run_service(trainer, door / "run"), 0);
}

TEST_F(actors_page_test, the_page_shows_this_code) {
  EXPECT_EQ(
    internal::test::compare_page_code(
      "docs/actors.md", {"tests/integration/pages/actors_page_test.cpp",
                         "tests/integration/torch/tensor_mailbox_test.cpp"}),
    8u);
}

} // namespace actors_page
