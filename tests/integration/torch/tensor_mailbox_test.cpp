// Tensors as messages to the loop of a rank process, and back.

#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include <ATen/ATen.h>
#include <caf/io/middleman.hpp>
#include <caf/scoped_actor.hpp>
#include <gtest/gtest.h>
#include <troupe/actors.hpp>

#include "tests/support/own_system.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/actors/compat/messaging.hpp"
#include "troupe/trainers/torch/tensor_message.hpp"

namespace troupe::internal::test {

using namespace std::chrono_literals;

namespace {

/// Answers each tensor by twice its numbers, until one has none.
void doubling_loop(train_context& context) {
  rank_mailbox mailbox{context};
  for (;;) {
    auto asked = mailbox.receive<tensor_message>();
    auto x = to_tensor(asked.value); // shares the memory of the message
    asked.answer(to_message(x * 2));
    if (x.numel() == 0)
      return;
  }
}

/// Finds the only rank of *run*.
rank_observer_actor::behavior_type finder(rank_observer_actor::pointer self,
                                          const run_control_actor& run,
                                          std::promise<caf::actor>* rank) {
  auto is_found = std::make_shared<bool>(false);
  auto note = [rank, is_found](const ranks_changed& x) {
    if (x.is_complete() && !std::exchange(*is_found, true))
      rank->set_value(x.ranks.at(0));
  };
  request(self, run, 30s, follow_ranks{}, rank_observer_actor{self})
    .then(note, [](const caf::error& x) { ADD_FAILURE() << to_string(x); });
  return {note};
}

at::Tensor doubled(caf::scoped_actor& self, const caf::actor& rank,
                   const at::Tensor& x) {
  at::Tensor result;
  request(self, rank, 60s, to_message(x))
    .receive([&](const tensor_message& y) { result = to_tensor(y); },
             [](const caf::error& y) { ADD_FAILURE() << to_string(y); });
  return result;
}

} // namespace

TEST(tensor_mailbox_test, tensors_of_any_size_go_to_a_rank_and_back) {
  own_system system;
  temporary_folder storage;
  train_options options{.scaling = {.num_workers = 1},
                        .run = {.name = "run", .storage_path = storage.path()}};
  options.run.quiet = true;
  auto run = data_parallel_trainer{doubling_loop, options}.start(system);
  ASSERT_TRUE(run) << run.error().message;
  std::promise<caf::actor> found;
  auto watch = system.spawn(finder, run->control(), &found);
  auto rank = found.get_future().get();
  caf::scoped_actor self{system};
  for (auto& x : {at::arange(6, at::kLong).view({2, 3}),
                  at::rand({1024, 1024}), // through shared memory
                  at::scalar_tensor(1.5, at::kBFloat16), at::ones({0, 4})}) {
    auto twice = doubled(self, rank, x);
    ASSERT_TRUE(twice.defined());
    EXPECT_EQ(twice.scalar_type(), x.scalar_type());
    EXPECT_TRUE(twice.equal(x * 2));
  }
  EXPECT_EQ(run->wait().status, run_status_kind::finished);
  caf::anon_send_exit(watch, caf::exit_reason::kill);
}

} // namespace troupe::internal::test
