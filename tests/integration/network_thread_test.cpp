// Who runs the event loop of a rank: its network thread, or the thread that
// waits for an answer.

#include <algorithm>
#include <atomic>
#include <csignal>
#include <future>
#include <optional>
#include <thread>
#include <vector>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <caf/event_based_actor.hpp>
#include <caf/io/middleman.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <gtest/gtest.h>

#include "tests/support/own_system.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/transport/connect.hpp"
#include "troupe/actors/transport/network_thread.hpp"
#include "troupe/actors/transport/published_socket.hpp"
#include "troupe/actors/transport/system_config.hpp"

namespace troupe::internal {

namespace {

using namespace std::chrono_literals;

using half_actor = caf::typed_actor<caf::result<std::int32_t>(std::int32_t)>;

half_actor::behavior_type half(half_actor::pointer) {
  return {[](std::int32_t x) { return x / 2; }};
}

/// The actor at the socket *path* in a child process.
class half_server {
public:
  explicit half_server(const fs::path& path) {
    int ready[2];
    if (pipe(ready) != 0)
      return;
    child_ = fork();
    if (child_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      test::own_system system;
      auto socket = publish(system, system.spawn(half), path);
      if (!socket || write(ready[1], "r", 1) != 1)
        _exit(1);
      pause();
    }
    close(ready[1]);
    char byte;
    up_ = read(ready[0], &byte, 1) == 1;
    close(ready[0]);
  }

  ~half_server() { kill(); }

  void kill() {
    if (child_ <= 0)
      return;
    ::kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = -1;
  }

  bool up() const { return up_; }

private:
  pid_t child_ = -1;
  bool up_ = false;
};

/// Two actors of the event loop that send a message to each other until `stop`.
class players {
public:
  explicit players(caf::actor_system& system) {
    for (auto i : {0, 1})
      actors_[i] = spawn_on_network_thread(system, play, this, 1 - i);
    send_anonymous(actors_[0], std::int32_t{0});
  }

  /// Returns once there is no message of theirs any more.
  void stop() {
    stopped_ = true;
    over_.get_future().wait();
  }

private:
  using player_actor = caf::typed_actor<caf::result<void>(std::int32_t)>;

  static player_actor::behavior_type play(player_actor::pointer self,
                                          players* game, int other) {
    return {[self, game, other](std::int32_t x) {
      if (game->stopped_)
        game->over_.set_value();
      else
        send(self, game->actors_[other], x);
    }};
  }

  player_actor actors_[2];
  std::atomic<bool> stopped_ = false;
  std::promise<void> over_;
};

/// A system as a rank has it.
struct client {
  explicit client(const fs::path& path)
    : server(connect<half_actor>(system, path)) {}

  system_config config;
  caf::actor_system system{config.with_own_network_thread()};
  network_thread network{system};
  expected<half_actor> server;
};

struct network_thread_test : testing::Test {
  void SetUp() override {
    ASSERT_TRUE(server.up());
    ASSERT_TRUE(rank.server) << rank.server.error().message;
  }

  template <class Self>
  std::optional<std::int32_t> ask(Self& self, std::int32_t x) {
    std::optional<std::int32_t> result;
    request(self, *rank.server, caf::infinite, x)
      .receive([&](std::int32_t answer) { result = answer; },
               [](const caf::error&) {});
    return result;
  }

  test::private_folder folder;
  fs::path path = folder.path() / "half";
  half_server server{path};
  client rank{path};
};

TEST_F(network_thread_test, answers_reach_those_who_drive_and_those_who_sleep) {
  constexpr std::int32_t rounds = 2000;
  auto sleeper = std::async(std::launch::async, [this] {
    caf::scoped_actor self{rank.system};
    for (std::int32_t i = 0; i < rounds; ++i)
      if (ask(self, 2 * i) != i)
        return i;
    return rounds;
  });
  network_waiter self{rank.system, &rank.network};
  for (std::int32_t i = 0; i < rounds; ++i)
    ASSERT_EQ(ask(self, 2 * i), i);
  EXPECT_EQ(sleeper.get(), rounds);
}

TEST_F(network_thread_test, messages_arrive_while_no_one_waits) {
  network_waiter self{rank.system, &rank.network};
  for (std::int32_t i = 0; i < 50; ++i) {
    ASSERT_EQ(ask(self, 2 * i), i);
    std::promise<std::int32_t> got;
    auto answer = got.get_future();
    rank.system.spawn([&](caf::event_based_actor* asker) {
      request(asker, *rank.server, caf::infinite, 2 * i)
        .then([&](std::int32_t x) { got.set_value(x); });
    });
    ASSERT_EQ(answer.get(), i);
  }
}

TEST_F(network_thread_test, an_answer_that_was_there_first_is_not_lost) {
  network_waiter self{rank.system, &rank.network};
  auto first = request(self, *rank.server, caf::infinite, 2);
  auto second = request(self, *rank.server, caf::infinite, 4);
  std::int32_t sum = 0;
  auto add = [&](std::int32_t x) { sum += x; };
  auto fail = [](const caf::error&) {};
  std::move(second).receive(add, fail);
  std::move(first).receive(add, fail);
  EXPECT_EQ(sum, 3);
}

TEST_F(network_thread_test, the_driving_thread_is_notified_of_a_lost_peer) {
  network_waiter self{rank.system, &rank.network};
  self->monitor(*rank.server);
  ASSERT_EQ(ask(self, 2), 1);
  std::thread killer{[this] { server.kill(); }};
  caf::error reason;
  self->receive([&](const caf::down_msg& x) { reason = x.reason; });
  killer.join();
  EXPECT_EQ(reason, caf::exit_reason::remote_link_unreachable);
}

TEST_F(network_thread_test, actors_that_never_rest_keep_no_socket_waiting) {
  players game{rank.system};
  network_waiter self{rank.system, &rank.network};
  for (std::int32_t i = 0; i < 100; ++i)
    EXPECT_EQ(ask(self, 2 * i), i);
  game.stop();
}

TEST(network_test, actors_that_never_rest_keep_no_socket_waiting) {
  test::private_folder folder;
  half_server server{folder.path() / "half"};
  ASSERT_TRUE(server.up());
  test::own_system system;
  auto half = connect<half_actor>(system, folder.path() / "half");
  ASSERT_TRUE(half) << half.error().message;
  players game{system};
  caf::scoped_actor self{system};
  for (std::int32_t i = 0; i < 100; ++i)
    request(self, *half, caf::infinite, 2 * i)
      .receive([i](std::int32_t x) { EXPECT_EQ(x, i); },
               [](const caf::error&) { ADD_FAILURE(); });
  game.stop();
}

TEST_F(network_thread_test, what_a_thread_posts_runs_in_its_order) {
  constexpr int count = 2000;
  constexpr int threads = 4;
  auto& loop = rank.system.middleman().backend();
  std::vector<std::vector<int>> seen(threads);
  std::vector<std::thread> posters;
  for (int t = 0; t < threads; ++t)
    posters.emplace_back([&, t] {
      for (int i = 0; i < count; ++i)
        loop.post([&seen, t, i] { seen[t].push_back(i); });
      std::promise<void> done;
      loop.post([&done] { done.set_value(); });
      done.get_future().wait();
    });
  for (auto& x : posters)
    x.join();
  for (auto& x : seen) {
    ASSERT_EQ(x.size(), static_cast<std::size_t>(count));
    EXPECT_TRUE(std::is_sorted(x.begin(), x.end()));
  }
}

TEST(loop_pauses_test, grow_as_long_as_someone_comes_and_goes) {
  loop_pauses pauses;
  EXPECT_EQ(pauses.look(1), loop_pauses::shortest);
  EXPECT_EQ(pauses.look(2), 2 * loop_pauses::shortest);
  for (std::uint64_t moves = 4; moves < 20; moves += 3)
    EXPECT_EQ(pauses.look(moves), loop_pauses::longest);
}

TEST(loop_pauses_test, end_and_are_short_again_once_no_one_has) {
  loop_pauses pauses;
  EXPECT_EQ(pauses.look(0), std::nullopt);
  EXPECT_EQ(pauses.look(2), loop_pauses::shortest);
  EXPECT_EQ(pauses.look(4), 2 * loop_pauses::shortest);
  EXPECT_EQ(pauses.look(4), std::nullopt);
  EXPECT_EQ(pauses.look(5), loop_pauses::shortest);
}

TEST_F(network_thread_test, without_a_network_the_thread_sleeps) {
  network_waiter self{rank.system, nullptr};
  EXPECT_EQ(ask(self, 8), 4);
}

} // namespace

} // namespace troupe::internal
