// Drivers and ranks that die at a bad moment, and what runs leave behind.

#include <fcntl.h>
#include <malloc.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <fstream>
#include <future>
#include <set>
#include <vector>

#include <caf/actor_system.hpp>
#include <troupe/actors.hpp>

#include "tests/integration/run/report_hook.hpp"
#include "tests/integration/run/run_test.hpp"
#include "tests/integration/run/victim.hpp"
#include "tests/support/checkpoint_files.hpp"
#include "tests/support/own_system.hpp"
#include "troupe/actors/process_launcher.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/shared_segment.hpp"
#include "troupe/runtime/store/run_store.hpp"
#include "troupe/trainers/rank_runner.hpp"

namespace troupe::internal::test {

namespace {

/// Names in the folder *path* that hold *part*.
std::set<std::string> names_in(const fs::path& path, const std::string& part) {
  std::set<std::string> result;
  boost::system::error_code failed;
  for (fs::directory_iterator i{path, failed}, end; !failed && i != end;
       i.increment(failed)) {
    auto name = i->path().filename().string();
    if (name.find(part) != std::string::npos)
      result.insert(name);
  }
  return result;
}

/// Children of this process itself, ended or not.
std::vector<pid_t> own_children() {
  return descendants(getpid());
}

/// Whether the open files of *pid* hold a `flock` on *path*.
bool holds_lock(pid_t pid, const fs::path& path) {
  auto process = fs::path{"/proc"} / std::to_string(pid);
  for (auto& fd : names_in(process / "fd", "")) {
    boost::system::error_code failed;
    if (fs::read_symlink(process / "fd" / fd, failed) != path || failed)
      continue;
    std::ifstream info{(process / "fdinfo" / fd).string()};
    for (std::string line; std::getline(info, line);)
      if (line.starts_with("lock:") && line.find("FLOCK") != line.npos)
        return true;
  }
  return false;
}

/// What a process holds: processes, threads, descriptors.
struct belongings {
  std::size_t processes = own_children().size();
  std::size_t threads = names_in("/proc/self/task", "").size();
  std::size_t descriptors = names_in("/proc/self/fd", "").size();

  bool operator==(const belongings&) const = default;
};

std::ostream& operator<<(std::ostream& out, const belongings& x) {
  return out << x.processes << " processes, " << x.threads << " threads, "
             << x.descriptors << " descriptors";
}

} // namespace

TEST_F(run_test, runs_one_after_the_other_keep_no_memory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's own allocator counts otherwise";
#else
  struct memory {
    double in_use = 0;   ///< Bytes that the allocator gave away.
    double resident = 0; ///< Bytes of the whole process.
  };
  auto memory_after = [this, number = 0](int runs) mutable {
    for (int i = 0; i < runs; ++i) {
      train_options options{.scaling = {.num_workers = 2},
                            .run = config("run" + std::to_string(++number))};
      auto outcome = run({}, options);
      EXPECT_FALSE(outcome.error) << outcome.error->message;
    }
    auto all = mallinfo2();
    std::size_t pages = 0;
    std::ifstream{"/proc/self/statm"} >> pages >> pages;
    return memory{static_cast<double>(all.uordblks + all.hblkhd),
                  static_cast<double>(pages)
                    * static_cast<double>(sysconf(_SC_PAGESIZE))};
  };
  auto begin = memory_after(1);
  // What threads keep at hand counts as in use, too: it does not add up.
  auto first = memory_after(20);
  auto later = memory_after(60);
  EXPECT_LT((later.in_use - first.in_use) / 60, 2048) << "bytes per run";
  // Each thread may be given an arena that none had before, and an arena keeps
  // the most that it ever held.
  EXPECT_LT(later.resident - begin.resident, 4 << 20);
#endif
}

// B10: a next attempt waits for this lock (ranks_lock_test).
TEST_F(run_test, a_rank_process_holds_the_lock_on_ranks_until_it_ends) {
  train_options options{.scaling = {.num_workers = 2}, .run = config()};
  auto lock = run_path() / "ranks";
  std::vector<pid_t> holders, ranks;
  auto is_free = [&lock] {
    unique_fd file{::open(lock.c_str(), O_RDWR | O_CLOEXEC)};
    return file && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0;
  };
  auto free = true;
  options.run.callbacks = {on_report(1, [&] {
    ranks = processes_of_ranks();
    std::ranges::copy_if(ranks, std::back_inserter(holders),
                         [&](pid_t x) { return holds_lock(x, lock); });
    free = is_free();
  })};
  auto outcome = run({.steps = 5}, options);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(ranks.size(), 2u);
  EXPECT_EQ(holders, ranks);
  EXPECT_FALSE(free);
  EXPECT_TRUE(is_free());
}

// It was launched, and no one waited for it: it had no lock yet.
TEST_F(run_test, a_rank_process_leaves_if_a_later_attempt_has_begun) {
  auto store = run_store::open(resolve(config())).value();
  ASSERT_TRUE(store->begin_attempt());
  auto late = store->ticket().value();
  ASSERT_TRUE(store->begin_attempt());
  testing::internal::CaptureStderr();
  auto code = rank_process(rank_bootstrap{0, 0, late.token}.to_bytes(),
                           {-1, -1, late.file.release()});
  EXPECT_NE(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(code, 1);
}

// Its agent must not wait for a storage that hangs.
TEST_F(run_test, a_rank_that_hangs_after_its_loop_is_killed_and_has_returned) {
  train_options options{.scaling = {.num_workers = 2}, .run = config()};
  options.run.exit_timeout = std::chrono::milliseconds{100};
  auto outcome = run({.action = "hang_at_exit", .rank = 0, .step = 2}, options);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.status, run_status_kind::finished);
  EXPECT_EQ(outcome.attempts, 1u);
}

/// One report of progress, then a failure, in every attempt.
void report_and_fail(train_context& context) {
  context.report({{"attempt", static_cast<int>(context.attempt())}});
  throw std::runtime_error{"again"};
}

TEST_F(run_test, restarts_with_a_console_hold_nothing) {
  struct usage {
    std::size_t descriptors = names_in("/proc/self/fd", "").size();
    std::size_t threads = names_in("/proc/self/task", "").size();
    std::size_t pages = [] {
      std::size_t result = 0;
      std::ifstream{"/proc/self/statm"} >> result;
      return result;
    }();
  };

  /// Looks after each failed attempt, while the next one comes up.
  struct watch : user_callback {
    void after_exception(const run_context&,
                         const std::map<int, rank_failure>&) override {
      seen.emplace_back();
    }

    std::vector<usage> seen;
  };
  auto seen = std::make_shared<watch>();
  train_options options{.scaling = {.num_workers = 1}, .run = config()};
  options.run.quiet = false;
  options.run.failure.max_failures = 60;
  options.run.callbacks = {seen};
  auto outcome = data_parallel_trainer{report_and_fail, options}.fit();
  EXPECT_EQ(outcome.attempts, 61u);
  ASSERT_EQ(seen->seen.size(), 61u);
  auto& early = seen->seen[10];
  auto& late = seen->seen[60];
  // What is under way at such a moment differs by a few.
  EXPECT_LT(late.descriptors, early.descriptors + 20);
  EXPECT_LT(late.threads, early.threads + 10);
  constexpr std::size_t page = 4096, limit = 200 << 20;
  EXPECT_LT(late.pages * page, early.pages * page + limit);
}

TEST_F(run_test, what_a_rank_has_started_ends_with_it) {
  for (auto action : {"leave_child", "leave_session"}) {
    train_options options{.scaling = {.num_workers = 2}, .run = config(action)};
    auto outcome = run({.action = action, .rank = 1, .step = 1}, options);
    EXPECT_FALSE(outcome.error) << outcome.error->message;
    EXPECT_TRUE(processes_of_ranks().empty()) << action;
  }
}

TEST_F(run_test, a_run_can_be_stopped_while_its_ranks_come_up) {
  own_system system;
  for (int i = 0; i < 10; ++i) {
    auto handle =
      data_parallel_trainer{
        counting_loop, fault_plan{.steps = 1'000'000'000, .checkpoint_by = -1},
        train_options{.scaling = {.num_workers = 3},
                      .run = config("run" + std::to_string(i))}}
        .start(system);
    ASSERT_TRUE(handle) << handle.error().message;
    handle->abort();
    auto outcome = handle->wait();
    EXPECT_EQ(outcome.status, run_status_kind::aborted)
      << (outcome.error ? outcome.error->message : "");
  }
  EXPECT_LE(own_children().size(), 1u); // the spawner, if it came to one
}

TEST_F(run_test, the_third_signal_ends_a_driver_at_once) {
  victim program{storage_.path().string(), "wait_forever"};
  auto journal = run_path() / "journal.jsonl";
  wait_for(storage_.path(), [&] {
    return bytes_of(journal).find("\"batch\":1,") != std::string::npos;
  });
  auto processes = descendants(program.pid());
  program.kill(SIGINT);
  wait_for(run_path(), [&] {
    return bytes_of(journal).find("shutting_down") != std::string::npos;
  });
  do // What comes within moments counts as one.
    program.kill(SIGTERM);
  while (!gone_within(program.pid(), 1));
  auto status = program.wait();
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
  for (auto pid : processes)
    EXPECT_TRUE(gone_within(pid, 2)) << pid;
}

// A rank that was given up may end at any time.
TEST_F(run_test, the_late_end_of_a_rank_takes_nothing_from_its_successor) {
  auto store = run_store::open(resolve(config())).value();
  ASSERT_TRUE(store->begin_attempt());
  std::vector<unique_fd> peers;
  process_launcher_args args;
  args.spawner = *spawner();
  args.new_connection = [&]() -> expected<unique_fd> {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      return system_failure(ec::spawn, "socketpair");
    peers.emplace_back(ends[0]);
    return unique_fd{ends[1]};
  };
  args.ticket = [&] { return store->ticket(); };
  args.inherited = inherit(args.spawner->variables()).value();
  process_launcher launcher{args};
  start_ranks order{1, {{.run_path = run_path().string()}}};
  launcher.prepare(order);
  unique_fd memory{::memfd_create("segment", MFD_CLOEXEC)};
  struct process {
    std::promise<pid_t> launched;
    std::promise<void> exited;
  } first, second;
  for (auto* x : {&first, &second}) {
    launcher.launch(x == &first ? 1 : 2, 0, memory.get(),
                    [x](const rank_launcher::event& what) {
                      if (auto launched = std::get_if<rank_launched>(&what))
                        x->launched.set_value(launched->pid);
                      else if (std::holds_alternative<rank_exited>(what))
                        x->exited.set_value();
                    });
  }
  kill(first.launched.get_future().get(), SIGKILL);
  auto pid = second.launched.get_future().get();
  first.exited.get_future().get();
  EXPECT_TRUE(launcher.vitals(0));
  kill(pid, SIGKILL);
  second.exited.get_future().get();
  EXPECT_FALSE(launcher.vitals(0));
}

TEST_F(run_test, a_program_without_standard_descriptors_trains) {
  std::vector<std::vector<int>> sets{{0}, {1}, {2}, {0, 1}, {1, 2}, {0, 1, 2}};
  for (std::size_t i = 0; i < sets.size(); ++i) {
    auto storage = storage_ / std::to_string(i);
    fs::create_directory(storage);
    victim program{storage.string(), "print", sets[i]};
    auto status = program.wait();
    ASSERT_TRUE(WIFEXITED(status)) << i << ": " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 0) << i;
    auto journal = bytes_of(storage / "run" / "journal.jsonl");
    EXPECT_NE(journal.find("\"batch\":2,"), std::string::npos) << i;
    EXPECT_EQ(journal.find("spawner"), std::string::npos) << journal;
  }
}

TEST_F(run_test, the_next_start_removes_what_a_killed_driver_left) {
  victim program{storage_.path().string(), "stage_and_wait"};
  auto pid = program.pid();
  auto checkpoints = run_path() / "checkpoints";
  wait_for(storage_.path(), [&] {
    auto staged = names_in(checkpoints, ".staging-");
    return std::ranges::any_of(staged, [&](auto& name) {
      return fs::exists(checkpoints / name / "all_are_here");
    });
  });
  auto processes = descendants(pid);
  program.kill(SIGKILL);
  program.wait();
  for (auto x : processes)
    EXPECT_TRUE(gone_within(x, 2)) << x;
  EXPECT_FALSE(names_in(checkpoints, ".staging-").empty());
  auto next = run({.steps = 3});
  ASSERT_FALSE(next.error) << next.error->message;
  EXPECT_TRUE(names_in(checkpoints, ".staging-").empty());
}

TEST_F(run_test, nothing_is_left_after_a_run_however_it_ended) {
  // The first run in this process starts what stays for all.
  ASSERT_FALSE(
    run({}, {.scaling = {.num_workers = 2}, .run = config("warm")}).error);
  belongings before;
  int runs = 0;
  for (auto action : {"", "throw", "kill", "exit"})
    for (auto where : {placement::processes, placement::in_process}) {
      if (where == placement::in_process && *action != '\0'
          && std::string{action} != "throw")
        continue;
      auto name = "run" + std::to_string(runs++);
      fault_plan plan{.action = action, .rank = 1, .step = 1};
      (void) run(plan, {.scaling = {.num_workers = 2, .where = where},
                        .run = config(name)});
      EXPECT_EQ(belongings{}, before) << name;
      EXPECT_TRUE(
        names_in(storage_ / name / "checkpoints", ".staging-").empty());
    }
}

TEST_F(run_test, a_thread_left_behind_keeps_the_memory_of_its_own_attempt) {
  std::promise<void> first_is_here, next_is_here, has_aborted;
  auto first = first_is_here.get_future().share();
  auto next = next_is_here.get_future().share();
  auto aborted = has_aborted.get_future().share();
  std::atomic<bool> spoiled{false};
  auto loop = [&](train_context& context) {
    auto& facts = rank_access{context}.facts();
    auto attach = [&] {
      return shared_segment::attach(facts.segment,
                                    {facts.run_id, facts.attempt});
    };
    if (context.attempt() == 0) {
      if (context.rank() == 1) {
        first.wait(); // A failure before would be one of the start.
        throw std::runtime_error{"again"};
      }
      first_is_here.set_value();
      next.wait(); // Longer than the limit for leaving.
      if (auto segment = attach())
        segment->abort({ec::rank_failed, "too late"});
      has_aborted.set_value();
      return;
    }
    auto segment = attach();
    context.barrier();
    if (context.rank() == 0)
      next_is_here.set_value();
    aborted.wait();
    spoiled = spoiled || !segment || segment->aborted();
    context.barrier();
  };
  train_options options{
    .scaling = {.num_workers = 2, .where = placement::in_process},
    .run = config()};
  options.run.stop_timeout = std::chrono::milliseconds{50};
  options.run.failure.max_failures = 1;
  auto outcome = data_parallel_trainer{in_process_loop{loop}, options}.fit();
  EXPECT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.attempts, 2u);
  EXPECT_FALSE(spoiled);
}

} // namespace troupe::internal::test
