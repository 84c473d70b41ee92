// Messages of a service's own to the loops of ranks, and their answers.

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <future>

#include <caf/io/middleman.hpp>
#include <caf/scoped_actor.hpp>
#include <gmock/gmock.h>
#include <troupe/actors.hpp>

#include "tests/integration/run/mailbox_loop.hpp"
#include "tests/integration/run/run_test.hpp"
#include "tests/support/own_system.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/shared_descriptors.hpp"
#include "troupe/actors/compat/messaging.hpp"

extern char** environ;

namespace troupe::internal::test {

using testing::HasSubstr;
using namespace std::chrono_literals;

namespace {

/// Makes a second mailbox while there is one, then after it, which waits for a
/// message without an end.
void replacing_loop(train_context& context, const loop_plan& plan) {
  {
    rank_mailbox first{context};
    try {
      rank_mailbox second{context};
    } catch (const train_error& x) {
      std::ofstream{plan.note} << x.what();
    }
  }
  rank_mailbox mailbox{context};
  auto asked = mailbox.receive<question>(std::chrono::milliseconds::max());
  if (!asked)
    throw std::runtime_error{"the longest wait has ended"};
  asked->answer(reply{context.rank()});
}

/// Answers a ping by the number of messages that came before it.
void waiting_loop(train_context& context, const loop_plan&) {
  rank_mailbox mailbox{context};
  auto asked = mailbox.receive<ping>();
  asked.answer(reply{context.rank(), static_cast<int>(mailbox.waiting())});
}

/// Forks a process that leaves the loop, with a message that was not answered,
/// while the rank's network thread calls a handler. Answers by its exit code.
void forking_loop(train_context& context, const loop_plan&) {
  std::promise<void> entered, release;
  auto is_entered = entered.get_future();
  auto is_released = release.get_future();
  rank_mailbox mailbox{context};
  mailbox.on<ping>([&](const ping&) {
    entered.set_value();
    is_released.wait();
  });
  auto asked = mailbox.receive<question>();
  send_anonymous(mailbox.handle(), ping{});
  is_entered.wait();
  auto child = ::fork();
  if (child == 0) {
    ::alarm(60); // Should it wait for that thread.
    try {
      asked.answer(reply{});
      ::_exit(3);
    } catch (const train_error&) {
      return;
    }
  }
  int status = -1;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR)
    continue;
  release.set_value();
  asked.answer(
    reply{context.rank(), WIFEXITED(status) ? WEXITSTATUS(status) : -1});
  context.report({{"rank", context.rank()}});
}

/// What a service without Troupe's settings has.
struct plain_config : caf::actor_system_config {
  plain_config() {
    load<caf::io::middleman>();
    set("caf.scheduler.max-threads", 2);
  }
};

class rank_mailbox_test : public run_test {
protected:
  expected<run_handle> start(loop_plan plan, scaling_config scaling,
                             const std::string& name = "run") {
    train_options options{.scaling = scaling, .run = config(name)};
    options.run.failure.max_failures = 1;
    plan.note = note.string();
    return data_parallel_trainer{answering_loop, plan, options}.start(system);
  }

  void end(const ranks_changed& known) {
    for (auto& [rank, handle] : known.ranks)
      send_anonymous(handle, question{-1, {}});
  }

  fs::path note = storage_ / "note";
  own_system system;
  caf::scoped_actor self{system};
};

} // namespace

TEST_F(rank_mailbox_test, a_service_asks_the_loop_of_each_rank) {
  auto run = start({}, {.num_workers = 2});
  ASSERT_TRUE(run) << run.error().message;
  {
    rank_watch watch{system, run->control()};
    auto known = watch.all();
    ASSERT_EQ(known.ranks.size(), 2u);
    for (auto& [rank, handle] : known.ranks)
      for (auto i = 0; i < 600; ++i) {
        auto answer = ask(self, handle, question{i, {}});
        ASSERT_TRUE(answer) << answer.error().message;
        ASSERT_EQ(answer->rank, rank);
        ASSERT_EQ(answer->number, 2 * i);
      }
    auto refused = ask(self, known.ranks[1], question{1, "refuse"});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ec::invalid_argument);
    EXPECT_EQ(refused.error().message, "no answer to that");
    end(known);
    watch.wait([](const ranks_changed& x) { return x.ranks.empty(); });
  }
  EXPECT_EQ(run->wait().status, run_status_kind::finished);
}

TEST_F(rank_mailbox_test, handlers_answer_while_the_loop_computes) {
  auto gate = storage_ / "gate";
  ASSERT_EQ(::mkfifo(gate.c_str(), 0600), 0);
  auto run = start({.gate = gate.string()}, {.num_workers = 1});
  ASSERT_TRUE(run) << run.error().message;
  rank_watch watch{system, run->control()};
  auto known = watch.all();
  auto answer = ask(self, known.ranks[0], ping{});
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->rank, 0);
  // A rank can send to an actor whose handle it was given.
  caf::scoped_actor other{system};
  send_anonymous(known.ranks[0], introduce_to{caf::actor{other}});
  other->receive([](const reply& x) { EXPECT_EQ(x.number, 17); });
  std::ofstream{gate.string()} << "g";
  end(known);
  EXPECT_EQ(run->wait().status, run_status_kind::finished);
}

TEST_F(rank_mailbox_test, a_process_that_the_loop_forked_leaves_it_alone) {
  TROUPE_SKIP_FORKS_UNDER_TSAN();
  train_options options{.scaling = {.num_workers = 1}, .run = config()};
  auto run =
    data_parallel_trainer{forking_loop, loop_plan{}, options}.start(system);
  ASSERT_TRUE(run) << run.error().message;
  rank_watch watch{system, run->control()};
  auto answer = ask(self, watch.all().ranks.at(0), question{});
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->number, 0);
  EXPECT_EQ(run->wait().status, run_status_kind::finished);
}

TEST_F(rank_mailbox_test, a_full_mailbox_refuses_requests_and_counts_the_rest) {
  auto gate = storage_ / "gate";
  ASSERT_EQ(::mkfifo(gate.c_str(), 0600), 0);
  auto run = start({.capacity = 2, .gate = gate.string()}, {.num_workers = 1});
  ASSERT_TRUE(run) << run.error().message;
  rank_watch watch{system, run->control()};
  auto rank = watch.all().ranks.at(0);
  send_anonymous(rank, question{1, {}});
  send_anonymous(rank, question{2, {}});
  auto refused = ask(self, rank, question{3, {}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ec::mailbox_full);
  EXPECT_THAT(refused.error().message, HasSubstr("rank 0"));
  EXPECT_THAT(refused.error().message, HasSubstr("2 wait for its loop"));
  for (auto i = 0; i < 3; ++i)
    send_anonymous(rank, question{4, {}});
  std::ofstream{gate.string()} << "g";
  expected<reply> answer = refused; // Until the loop has made room.
  while (!answer && answer.error().code == ec::mailbox_full)
    answer = ask(self, rank, question{5, {}});
  ASSERT_TRUE(answer) << answer.error().message;
  answer = ask(self, rank, question{-1, {}});
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->dropped, 3u);
  EXPECT_EQ(run->wait().status, run_status_kind::finished);
}

TEST_F(rank_mailbox_test, a_restarted_rank_never_sees_older_messages) {
  auto gate = storage_ / "gate";
  auto run = start({}, {.num_workers = 2});
  ASSERT_TRUE(run) << run.error().message;
  rank_watch watch{system, run->control()};
  auto before = watch.all();
  send_anonymous(before.ranks[1], question{1, "die"});
  for (auto i = 0; i < 100; ++i)
    send_anonymous(before.ranks[1], question{-1, {}});
  auto after = watch.all(1);
  EXPECT_EQ(after.attempt, 1u);
  for (auto& [rank, handle] : before.ranks)
    EXPECT_FALSE(ask(self, handle, question{3, {}})) << rank;
  for (auto& [rank, handle] : after.ranks) {
    auto answer = ask(self, handle, question{3, {}});
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(answer->rank, rank);
    EXPECT_EQ(answer->number, 6);
  }
  end(after);
  EXPECT_EQ(run->wait().status, run_status_kind::finished);
}

TEST_F(rank_mailbox_test, a_request_to_a_rank_that_dies_is_answered) {
  auto run = start({}, {.num_workers = 1});
  ASSERT_TRUE(run) << run.error().message;
  rank_watch watch{system, run->control()};
  auto before = watch.all();
  auto answer = ask(self, before.ranks[0], question{1, "die"});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ec::stopped);
  EXPECT_THAT(answer.error().message, HasSubstr("rank 0 of attempt 0"));
  end(watch.all(1));
  EXPECT_EQ(run->wait().status, run_status_kind::finished);
}

TEST_F(rank_mailbox_test, a_stop_ends_the_wait_for_a_message) {
  for (auto where : {placement::processes, placement::in_process}) {
    auto run = start({}, {.num_workers = 2, .where = where},
                     where == placement::processes ? "one" : "two");
    ASSERT_TRUE(run) << run.error().message;
    {
      rank_watch watch{system, run->control()};
      auto known = watch.all();
      ASSERT_TRUE(ask(self, known.ranks[0], question{3, {}}));
      run->abort();
    }
    EXPECT_EQ(run->wait().status, run_status_kind::aborted);
    EXPECT_EQ(bytes_of(note), "stopped");
    fs::remove(note);
  }
}

TEST_F(rank_mailbox_test, ranks_that_are_threads_take_messages) {
  for (auto workers : {2, 0}) {
    auto run =
      start({}, {.num_workers = workers, .where = placement::in_process},
            workers ? "threads" : "inline");
    ASSERT_TRUE(run) << run.error().message;
    rank_watch watch{system, run->control()};
    auto known = watch.all();
    for (auto& [rank, handle] : known.ranks) {
      auto answer = ask(self, handle, question{4, {}});
      ASSERT_TRUE(answer) << answer.error().message;
      EXPECT_EQ(answer->rank, rank);
    }
    end(known);
    EXPECT_EQ(run->wait().status, run_status_kind::finished);
  }
}

TEST_F(rank_mailbox_test, bulk_data_arrives_whole_whatever_its_size) {
  auto run = start({.capacity = 4}, {.num_workers = 1});
  ASSERT_TRUE(run) << run.error().message;
  rank_watch watch{system, run->control()};
  auto rank = watch.all().ranks.at(0);
  for (auto size : {1u, 80u, 3u, 80u, 1u, 1u}) {
    std::vector<std::byte> data(std::size_t{size} << 20);
    data.back() = static_cast<std::byte>(size);
    auto answer = ask(self, rank, shared_bytes::copy_of(data));
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(answer->number, static_cast<int>(size));
    EXPECT_EQ(answer->rank, static_cast<int>(size));
  }
  // What is not shared is limited.
  auto refused = ask(self, rank, question{1, std::string(65 << 20, 'x')});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ec::invalid_argument);
  send_anonymous(rank, question{-1, {}});
  EXPECT_EQ(run->wait().status, run_status_kind::finished);
}

TEST_F(rank_mailbox_test, what_a_rank_has_taken_costs_no_descriptor) {
  auto run = start({}, {.num_workers = 1});
  ASSERT_TRUE(run) << run.error().message;
  rank_watch watch{system, run->control()};
  auto rank = watch.all().ranks.at(0);
  std::vector<shared_bytes> kept;
  for (auto i = 0; i < 400; ++i) {
    std::vector<std::byte> data(64 << 10, static_cast<std::byte>(i % 100));
    kept.push_back(shared_bytes::copy_of(data));
    auto answer = ask(self, rank, kept.back());
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(answer->rank, i % 100);
  }
  // Those that keep theirs, and a quarter of the mailbox that the rank has yet
  // to give back.
  EXPECT_LE(shared_descriptors(), 128 + 64);
  send_anonymous(rank, question{-1, {}});
  EXPECT_EQ(run->wait().status, run_status_kind::finished);
}

TEST_F(rank_mailbox_test, a_rank_has_one_mailbox_at_a_time) {
  auto run =
    data_parallel_trainer{replacing_loop,
                          loop_plan{.note = note.string()},
                          {.scaling = {.num_workers = 1}, .run = config("run")}}
      .start(system);
  ASSERT_TRUE(run) << run.error().message;
  rank_watch watch{system, run->control()};
  expected<reply> answer = failure(ec::stopped, "not asked yet");
  // It may be the first one, which ends or has ended.
  while (!answer
         && (answer.error().code == ec::stopped
             || answer.error().code == ec::protocol))
    answer = ask(self, watch.all().ranks.at(0), question{3, {}});
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(run->wait().status, run_status_kind::finished);
  EXPECT_THAT(bytes_of(note), HasSubstr("rank 0 has a mailbox"));
}

TEST_F(rank_mailbox_test, a_loop_sees_how_many_messages_wait_for_it) {
  auto run =
    data_parallel_trainer{waiting_loop,
                          loop_plan{},
                          {.scaling = {.num_workers = 1}, .run = config("run")}}
      .start(system);
  ASSERT_TRUE(run) << run.error().message;
  rank_watch watch{system, run->control()};
  auto rank = watch.all().ranks.at(0);
  for (auto i = 0; i < 3; ++i)
    send_anonymous(rank, question{i, {}});
  auto answer = ask(self, rank, ping{});
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->number, 3);
  EXPECT_EQ(run->wait().status, run_status_kind::finished);
}

TEST_F(rank_mailbox_test, a_message_is_one_value) {
  auto run = start({}, {.num_workers = 1});
  ASSERT_TRUE(run) << run.error().message;
  rank_watch watch{system, run->control()};
  auto rank = watch.all().ranks.at(0);
  request(self, rank, 60s, question{}, 7)
    .receive([](const reply&) { ADD_FAILURE(); },
             [](const caf::error& x) {
               EXPECT_EQ(from_caf(x).code, ec::invalid_argument);
             });
  send_anonymous(rank, question{-1, {}});
  EXPECT_EQ(run->wait().status, run_status_kind::finished);
}

// -- another process

namespace {

/// Asks both ranks of the run that is published at *socket*, then ends them.
int be_asker(const std::string& socket) {
  plain_config settings;
  caf::actor_system system{settings};
  auto run = connect<run_control_actor>(system, socket);
  if (!run)
    return 1;
  rank_watch watch{system, *run};
  auto known = watch.all();
  caf::scoped_actor self{system};
  for (auto& [rank, handle] : known.ranks) {
    auto answer = ask(self, handle, question{21, {}});
    if (!answer || answer->rank != rank || answer->number != 42)
      return 2;
    std::vector<std::byte> data(9 << 20, std::byte{7});
    answer = ask(self, handle, shared_bytes::copy_of(data));
    if (!answer || answer->number != 9 || answer->rank != 7)
      return 3;
  }
  for (auto& [rank, handle] : known.ranks)
    send_anonymous(handle, question{-1, {}});
  watch.wait([](const ranks_changed& x) { return x.ranks.empty(); });
  return 0;
}

int run_asker(std::string socket) {
  std::string program = "/proc/self/exe", mode = "--asker";
  char* arguments[] = {program.data(), mode.data(), socket.data(), nullptr};
  pid_t child = -1;
  posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environ);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

} // namespace

TEST_F(rank_mailbox_test, another_process_asks_the_ranks) {
  private_folder folder;
  auto run = start({}, {.num_workers = 2});
  ASSERT_TRUE(run) << run.error().message;
  auto door = publish(system, run->control(), folder / "run");
  ASSERT_TRUE(door) << door.error().message;
  EXPECT_EQ(run_asker((folder / "run").string()), 0);
  EXPECT_EQ(run->wait().status, run_status_kind::finished);
}

// -- a service with settings, threads and actors of its own

namespace {

struct ended_run {
  std::string path;
  run_status_kind status;
};

/// Follows runs and notes how they end.
run_observer_actor::behavior_type
end_recorder(run_observer_actor::pointer,
             const std::function<void(ended_run)>& note) {
  auto ok = [](const auto&) { return callback_done{}; };
  return {
    [=](const before_run& x) { return ok(x); },
    [=](const after_report& x) { return ok(x); },
    [=](const after_exception& x) { return ok(x); },
    [=](const after_run& x) {
      note({x.outcome.path.string(), x.outcome.status});
      return callback_done{};
    },
    [=](const state_changed& x) { return ok(x); },
    [=](const group_started& x) { return ok(x); },
    [=](const group_ended& x) { return ok(x); },
  };
}

} // namespace

TEST_F(rank_mailbox_test, a_service_of_its_own_has_several_runs_at_once) {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, run_status_kind> ends;
  plain_config own_settings;
  caf::actor_system own{own_settings};
  auto recorder = own.spawn(end_recorder, std::function{[&](ended_run x) {
                              std::lock_guard guard{mutex};
                              ends[fs::path{x.path}.filename().string()] =
                                x.status;
                              changed.notify_all();
                            }});
  caf::scoped_actor asker{own};
  std::vector<run_handle> runs;
  for (auto name : {"one", "two"}) {
    train_options options{.scaling = {.num_workers = 2}, .run = config(name)};
    loop_plan plan{.note = note.string()};
    auto run = data_parallel_trainer{answering_loop, plan, options}.start(own);
    ASSERT_TRUE(run) << run.error().message;
    request(asker, run->control(), 30s, follow_run{}, recorder)
      .receive([](const run_status&) {},
               [](const caf::error& x) { ADD_FAILURE() << to_string(x); });
    runs.push_back(std::move(*run));
  }
  {
    rank_watch first{own, runs[0].control()}, second{own, runs[1].control()};
    auto one = first.all(), two = second.all();
    EXPECT_TRUE(ask(asker, one.ranks[1], question{1, {}}));
    EXPECT_TRUE(ask(asker, two.ranks[1], question{1, {}}));
    end(one);
    send(asker, runs[1].control(), abort_run{"enough"});
  }
  std::unique_lock lock{mutex};
  ASSERT_TRUE(changed.wait_for(lock, 60s, [&] { return ends.size() == 2; }));
  EXPECT_EQ(ends["one"], run_status_kind::finished);
  EXPECT_EQ(ends["two"], run_status_kind::aborted);
  lock.unlock();
  caf::anon_send_exit(recorder, caf::exit_reason::user_shutdown);
}

} // namespace troupe::internal::test

int main(int argc, char** argv) {
  using namespace troupe::internal::test;
  troupe::register_messages<caf::id_block::mailbox_test>();
  troupe::init(argc, argv);
  if (argc > 2 && std::string{argv[1]} == "--asker")
    return be_asker(argv[2]);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
