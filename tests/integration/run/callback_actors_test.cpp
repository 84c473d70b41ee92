// Callbacks that are actors of the user's own: in the actor system of the run,
// and in a process that the run knows by a socket only.

#include <sstream>

#include <caf/actor_system.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <gmock/gmock.h>
#include <troupe/actors.hpp>

#include "tests/integration/run/listener.hpp"
#include "tests/integration/run/run_test.hpp"
#include "tests/support/own_system.hpp"

namespace troupe::internal::test {

using testing::ElementsAre;
using testing::HasSubstr;

namespace {

std::vector<std::string> lines_of(const fs::path& file) {
  std::istringstream text{bytes_of(file)};
  std::vector<std::string> result;
  for (std::string line; std::getline(text, line);)
    result.push_back(line);
  return result;
}

user_callback_actor::behavior_type
recorder(user_callback_actor::pointer,
         std::shared_ptr<std::vector<std::string>> calls) {
  auto note = [calls](std::string call) {
    calls->push_back(std::move(call));
    return callback_done{};
  };
  return {
    [=](const before_run& x) { return note("before_run " + x.run.name); },
    [=](const after_report& x) {
      return note("after_report " + std::to_string(x.index) + " of "
                  + std::to_string(x.values.size()));
    },
    [=](const after_exception&) { return note("after_exception"); },
    [=](const after_run& x) {
      return note("after_run " + std::string{to_string(x.outcome.status)});
    },
  };
}

} // namespace

class callback_actor_test : public run_test {
protected:
  train_options options() {
    return {.scaling = {.num_workers = 2}, .run = config()};
  }

  private_folder folder;
  std::string socket = (folder / "listener").string();
  fs::path file = storage_ / "heard";
};

TEST_F(callback_actor_test, another_process_receives_every_report_in_order) {
  listener peer{socket, file.string()};
  ASSERT_TRUE(peer.is_ready());
  auto given = options();
  given.run.callback_actors = {callback_at(socket, "listener")};
  given.run.failure.max_failures = 1;
  auto outcome =
    run({.action = "throw", .rank = 1, .step = 2, .steps = 40}, given);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(peer.wait(), 0);
  auto path = run_path().string();
  std::vector<std::string> expected{"before_run run " + path + " 2"};
  for (int i = 0; i < 40; ++i) {
    auto n = std::to_string(i);
    auto name = "checkpoint_" + std::string(6 - n.size(), '0') + n;
    if (i == 2)
      expected.push_back("after_exception 1 the loss is a banana");
    expected.push_back("after_report " + n + " [rank=0 step=" + n
                       + "] [rank=1 step=" + n + "] " + path + "/checkpoints/"
                       + name);
  }
  expected.push_back("after_run finished checkpoint_000039 40");
  EXPECT_EQ(lines_of(file), expected);
}

// As one of this process does.
TEST_F(callback_actor_test, another_process_sees_the_group_start_and_end) {
  listener peer{socket, file.string(), "observe"};
  ASSERT_TRUE(peer.is_ready());
  own_system system;
  auto here = storage_ / "seen";
  auto given = options();
  given.run.callback_actors = {as_callback(system.spawn<caf::detached>(
                                 observer, here.string(), run_control_actor{})),
                               callback_at(socket, "listener")};
  given.run.failure.max_failures = 1;
  auto outcome =
    run({.action = "throw", .rank = 1, .step = 2, .steps = 4}, given);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(peer.wait(), 0);
  auto heard = lines_of(file);
  EXPECT_EQ(heard, lines_of(here));
  for (auto line : {"state running", "group_started 0", "state restarting",
                    "group_started 1", "state finished"})
    EXPECT_THAT(heard, testing::Contains(line));
  EXPECT_THAT(heard, testing::Contains(testing::StartsWith("group_ended 0 ")));
  EXPECT_THAT(heard, testing::Contains("group_ended 1 none"));
}

TEST_F(callback_actor_test, one_whose_process_dies_is_noted_once) {
  listener peer{socket, file.string(), "die"};
  ASSERT_TRUE(peer.is_ready());
  auto given = options();
  given.run.callback_actors = {callback_at(socket, "listener")};
  auto outcome = run({}, given);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(peer.wait(), 7);
  auto journal = bytes_of(run_path() / "journal.jsonl");
  auto first =
    journal.find("callback actor 1 (listener) can no longer be reached");
  ASSERT_NE(first, std::string::npos) << journal;
  EXPECT_EQ(journal.find("callback actor 1", first + 1), std::string::npos);
}

TEST_F(callback_actor_test, one_whose_process_dies_ends_the_run_if_it_is_to) {
  listener peer{socket, file.string(), "die"};
  ASSERT_TRUE(peer.is_ready());
  auto given = options();
  given.run.callback_actors = {callback_at(socket, "listener")};
  given.run.callback_errors = callback_errors::abort;
  auto outcome = run({.steps = 1'000'000, .checkpoint_by = -1}, given);
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ec::callback_failed);
  EXPECT_THAT(outcome.error->message, HasSubstr("(listener)"));
}

TEST_F(callback_actor_test, one_that_is_not_there_is_refused_before_the_run) {
  auto given = options();
  given.run.callback_actors = {callback_at(socket, "listener")};
  auto outcome = run({}, given);
  ASSERT_TRUE(outcome.error);
  EXPECT_THAT(outcome.error->message,
              HasSubstr("callback actor 1 (listener): no process listens on"));
  EXPECT_FALSE(fs::exists(run_path()));
}

TEST_F(callback_actor_test, fit_runs_in_the_system_of_the_users_actor) {
  own_system system;
  auto calls = std::make_shared<std::vector<std::string>>();
  auto actor = system.spawn<caf::detached>(recorder, calls);
  auto given = options();
  given.run.callback_actors = {as_callback(actor, "mine")};
  auto outcome = run({.steps = 2}, given);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_THAT(*calls, ElementsAre("before_run run", "after_report 0 of 2",
                                  "after_report 1 of 2", "after_run finished"));
  caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
}

TEST_F(callback_actor_test, one_of_another_system_is_refused) {
  own_system one, other;
  auto calls = std::make_shared<std::vector<std::string>>();
  auto actor = other.spawn(recorder, calls);
  auto given = options();
  given.run.callback_actors = {as_callback(actor)};
  auto handle =
    data_parallel_trainer{counting_loop, fault_plan{}, given}.start(one);
  ASSERT_FALSE(handle);
  EXPECT_THAT(handle.error().message, HasSubstr("another actor system"));
  caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
}

TEST_F(callback_actor_test, a_connected_handle_works_in_a_system_of_the_users) {
  listener peer{socket, file.string()};
  ASSERT_TRUE(peer.is_ready());
  own_system system;
  auto found = connect<user_callback_actor>(system, socket);
  ASSERT_TRUE(found) << found.error().message;
  auto given = options();
  given.run.callback_actors = {as_callback(*found, "listener")};
  auto handle =
    data_parallel_trainer{counting_loop, fault_plan{}, given}.start(system);
  ASSERT_TRUE(handle) << handle.error().message;
  auto outcome = handle->wait();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(peer.wait(), 0);
  EXPECT_EQ(lines_of(file).size(), 5u);
  ASSERT_EQ(handle->status().callbacks.size(), 1u);
  EXPECT_EQ(handle->status().callbacks[0].name, "listener");
  EXPECT_GT(handle->status().callbacks[0].seconds, 0);
}

TEST_F(callback_actor_test, another_process_follows_and_ends_a_run) {
  own_system system;
  auto handle =
    data_parallel_trainer{
      counting_loop, fault_plan{.steps = 1'000'000'000, .checkpoint_by = -1},
      options()}
      .start(system);
  ASSERT_TRUE(handle) << handle.error().message;
  auto door = publish(system, handle->control(), socket);
  ASSERT_TRUE(door) << door.error().message;
  listener peer{socket, file.string(), "follow"};
  ASSERT_TRUE(peer.is_ready());
  auto outcome = handle->wait();
  EXPECT_EQ(outcome.status, run_status_kind::finished);
  EXPECT_EQ(outcome.stop_reason, "another process has seen enough");
  EXPECT_EQ(peer.wait(), 0);
  auto heard = lines_of(file);
  EXPECT_THAT(heard, testing::Contains("state shutting_down"));
  EXPECT_THAT(heard, testing::Contains("group_ended 0 none"));
  EXPECT_EQ(heard.front(), "before_run run " + run_path().string() + " 2");
  EXPECT_EQ(heard.back(),
            "after_run finished: another process has seen enough");
}

TEST_F(callback_actor_test, an_actor_ends_the_run_with_its_answer) {
  own_system system;
  auto actor = system.spawn(
    [](user_callback_actor::pointer) -> user_callback_actor::behavior_type {
      return {
        [](const before_run&) { return callback_done{}; },
        [](const after_report& x) {
          callback_done done;
          if (x.index == 2)
            done.orders = {{finish_run{"three are enough"}}};
          return done;
        },
        [](const after_exception&) { return callback_done{}; },
        [](const after_run&) { return callback_done{}; },
      };
    });
  auto given = options();
  given.run.callback_actors = {as_callback(actor, "judge")};
  auto outcome = run({.steps = 1'000'000'000, .checkpoint_by = -1}, given);
  EXPECT_EQ(outcome.status, run_status_kind::finished);
  EXPECT_EQ(outcome.stop_reason, "three are enough");
  caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
}

TEST_F(callback_actor_test, another_process_follows_an_inline_run) {
  listener peer{socket, file.string()};
  ASSERT_TRUE(peer.is_ready());
  auto given = options();
  given.scaling.num_workers = 0;
  given.run.callback_actors = {callback_at(socket, "listener")};
  auto outcome = run({.steps = 2}, given);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(peer.wait(), 0);
  auto path = run_path().string(), saved = path + "/checkpoints/checkpoint_";
  EXPECT_THAT(lines_of(file),
              ElementsAre("before_run run " + path + " 1",
                          "after_report 0 [rank=0 step=0] " + saved + "000000",
                          "after_report 1 [rank=0 step=1] " + saved + "000001",
                          "after_run finished checkpoint_000001 2"));
}

TEST_F(callback_actor_test, an_inline_run_is_in_the_system_of_the_users_actor) {
  own_system system;
  auto calls = std::make_shared<std::vector<std::string>>();
  auto actor = system.spawn<caf::detached>(recorder, calls);
  auto given = options();
  given.scaling.num_workers = 0;
  given.run.callback_actors = {as_callback(actor, "mine")};
  auto outcome = run({.steps = 2}, given);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_THAT(*calls, ElementsAre("before_run run", "after_report 0 of 1",
                                  "after_report 1 of 1", "after_run finished"));
  caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
}

} // namespace troupe::internal::test
