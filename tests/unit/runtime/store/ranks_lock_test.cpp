// Which ranks may join an attempt, and for which ones it waits.

#include "troupe/runtime/store/ranks_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "tests/support/checkpoint_files.hpp"
#include "tests/support/mentions.hpp"
#include "tests/unit/runtime/store/ranks_lock_fixture.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal::test {

namespace {

TEST_F(ranks_lock_test, a_rank_that_no_one_waited_for_joins_no_attempt) {
  auto folder = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(folder->claim(0));
  ASSERT_TRUE(folder->await_ranks(std::chrono::milliseconds{0}));
  auto late = folder->ticket().value();
  // Another attempt is about to begin, then it has begun.
  folder->release();
  unique_fd other{::open((run / "ranks").c_str(), O_RDWR | O_CLOEXEC)};
  ASSERT_EQ(::flock(other.get(), LOCK_EX | LOCK_NB), 0);
  for (auto begun : {false, true}) {
    if (begun) {
      other.reset();
      ASSERT_TRUE(folder->await_ranks(std::chrono::milliseconds{0}));
    }
    auto joined = join_attempt(late);
    ASSERT_FALSE(joined) << begun;
    EXPECT_EQ(joined.error().code, ec::stopped);
    EXPECT_TRUE(
      mentions(joined.error(), "another attempt of the run has begun"));
  }
  auto rank = join_attempt(folder->ticket().value());
  EXPECT_TRUE(rank) << rank.error().message;
}

// Removing the file excludes no rank from its attempt.
TEST_F(ranks_lock_test, ranks_join_an_attempt_whose_file_was_removed) {
  auto folder = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(folder->claim(0));
  ASSERT_TRUE(folder->await_ranks(std::chrono::milliseconds{0}));
  fs::remove(run / "ranks");
  auto rank = join_attempt(folder->ticket().value());
  EXPECT_TRUE(rank) << rank.error().message;
}

/// A process that has what a rank has, and nothing else of the driver's. Ends
/// when asked to.
class joined_rank {
public:
  explicit joined_rank(const ranks_ticket& ticket) {
    int ends[2], ready[2];
    EXPECT_EQ(::pipe(ends), 0);
    EXPECT_EQ(::pipe(ready), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      auto lock = join_attempt(ticket).value();
      ::dup2(ends[0], 200);
      ::dup2(lock.get(), 201);
      ::dup2(ready[1], 202);
      ::close_range(3, 199, 0);
      ::close_range(203, ~0u, 0);
      char end = 0;
      (void) !::write(202, &end, 1);
      (void) !::read(200, &end, 1);
      ::_exit(0);
    }
    ::close(ends[0]);
    ::close(ready[1]);
    end_ = ends[1];
    char has_closed_the_rest;
    EXPECT_EQ(::read(ready[0], &has_closed_the_rest, 1), 1);
    ::close(ready[0]);
  }

  ~joined_rank() {
    end();
    ::waitpid(pid_, nullptr, 0);
  }

  void end() {
    if (end_ >= 0)
      ::close(std::exchange(end_, -1));
  }

  pid_t pid() const { return pid_; }

private:
  pid_t pid_ = -1;
  int end_ = -1;
};

TEST_F(ranks_lock_test, an_attempt_waits_for_the_processes_of_earlier_ones) {
  auto first = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(first->claim(0));
  ASSERT_TRUE(first->await_ranks(std::chrono::milliseconds{0}));
  joined_rank rank{first->ticket().value()};
  // The driver's own restart, and the next driver.
  EXPECT_FALSE(first->await_ranks(std::chrono::milliseconds{0}));
  first.reset();
  auto second = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(second->claim(1));
  auto refused = second->await_ranks(std::chrono::milliseconds{20});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ec::timeout);
  EXPECT_TRUE(mentions(refused.error(), "pid " + std::to_string(rank.pid())))
    << refused.error().message;
  auto stopped =
    second->await_ranks(std::chrono::hours{1}, [] { return true; });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ec::stopped);
  rank.end();
  ASSERT_TRUE(second->await_ranks(std::chrono::seconds{60}));
}

// 15 s after it wanted to begin, and not after an hour.
TEST_F(ranks_lock_test, a_driver_waits_as_long_as_agents_of_the_one_before) {
  auto first = open().value();
  first->expect_lost_hosts(std::chrono::seconds{4});
  ASSERT_TRUE(first->begin_attempt());
  joined_rank frozen{first->ticket().value()};
  first.reset();
  auto second = open().value();
  second->expect_lost_hosts(std::chrono::hours{1});
  EXPECT_EQ(load_run(run).value()->lost_after_ms, 4000);
  auto begun = second->begin_attempt();
  ASSERT_TRUE(begun) << begun.error().message;
  EXPECT_TRUE(bytes_of(run / "journal.jsonl").find("ranks_abandoned")
              != std::string::npos);
  EXPECT_EQ(load_run(run).value()->lost_after_ms, 3'600'000);
}

// N6: a host that is frozen keeps its ranks and their locks. They, and what
// starts there after its thaw, have no part in later attempts.
TEST_F(ranks_lock_test, an_attempt_gives_up_the_ranks_of_lost_hosts) {
  auto folder = run_folder::open(storage.path(), "r").value();
  ASSERT_TRUE(folder->claim(0));
  ASSERT_TRUE(folder->await_ranks(std::chrono::milliseconds{0}));
  auto token = folder->ticket().value().token;
  joined_rank frozen{folder->ticket().value()};
  // Its agent has the file open, and is about to start a rank.
  auto late = open_ranks_ticket(run, token).value();
  std::vector<store_event> noted;
  auto note = [&](store_event x) -> expected<void> {
    EXPECT_EQ(token_in(run), token) << "journaled before anything happens";
    noted.push_back(std::move(x));
    return {};
  };
  auto patience = std::chrono::milliseconds{150};
  auto abandoned = [&](std::chrono::milliseconds waited) {
    return std::string{waited < patience ? "" : "h2, h3"};
  };
  ASSERT_TRUE(folder->await_ranks(
    std::chrono::hours{1}, [] { return false; }, note, abandoned));
  ASSERT_EQ(noted.size(), 1u);
  EXPECT_EQ(noted[0].kind, "ranks_abandoned");
  EXPECT_EQ(noted[0].fields, (metrics{{"hosts", "h2, h3"}}));
  EXPECT_EQ(::waitpid(frozen.pid(), nullptr, WNOHANG), 0) << "it is out of "
                                                             "reach";
  auto joined = join_attempt(late);
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().code, ec::stopped);
  EXPECT_FALSE(open_ranks_ticket(run, token));
  // The next attempt has its own locks, and that of the lost one is in no one's
  // way any more.
  auto next = folder->ticket().value();
  EXPECT_TRUE(open_ranks_ticket(run, next.token));
  {
    joined_rank rank{next};
    EXPECT_FALSE(folder->await_ranks(std::chrono::milliseconds{0}));
  }
  ASSERT_TRUE(folder->await_ranks(std::chrono::seconds{60}));
  std::size_t files = 0;
  for (auto& x : fs::directory_iterator(run))
    files += x.path().filename().string().starts_with("ranks") ? 1 : 0;
  EXPECT_EQ(files, 1u);
}

TEST_F(ranks_lock_test, a_run_gives_up_the_hosts_that_it_has_lost) {
  auto store = open().value();
  auto first = store->begin_attempt().value().attempt;
  joined_rank frozen{store->ticket().value()};
  store->abandon_ranks_of("h2");
  auto second = store->begin_attempt();
  ASSERT_TRUE(second) << second.error().message;
  // Its checkpoint, which it completes after its thaw, is not committed and
  // does not touch that of the attempt under way.
  auto own = stage_batch(run, second->attempt, 0, "c0", {{{"f", "own"}}});
  auto late = stage_batch(run, first, 0, "c0", {{{"f", "late"}}});
  ASSERT_TRUE(own);
  if (late) {
    EXPECT_FALSE(store->commit(first, *late));
  }
  auto kept = store->commit(second->attempt, *own);
  ASSERT_TRUE(kept) << kept.error().message;
  EXPECT_EQ(bytes_of(run / "checkpoints/c0/f"), "own");
}

TEST_F(ranks_lock_test, another_host_joins_the_latest_attempt_by_its_token) {
  auto store = open().value();
  ASSERT_TRUE(store->begin_attempt());
  auto token = store->ticket().value().token;
  auto ticket = open_ranks_ticket(store->path(), token);
  ASSERT_TRUE(ticket) << ticket.error().message;
  EXPECT_TRUE(join_attempt(*ticket));
  auto other = open_ranks_ticket(store->path(), token + 1);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ec::conflict);
}

TEST_F(ranks_lock_test, another_storage_at_the_same_path_is_noticed) {
  auto ticket = open_ranks_ticket(storage / "elsewhere", 1);
  ASSERT_FALSE(ticket);
  EXPECT_EQ(ticket.error().code, ec::invalid_config);
}

} // namespace

} // namespace troupe::internal::test
