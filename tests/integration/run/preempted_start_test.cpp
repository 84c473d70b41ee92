// Starts that have to go before their run trains.

#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <troupe/actors.hpp>

#include "tests/integration/run/preemption.hpp"
#include "tests/integration/run/run_test.hpp"
#include "tests/integration/run/victim.hpp"
#include "tests/support/own_system.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/store/run_store.hpp"
#include "troupe/trainers/run_parts.hpp"

namespace troupe::internal::test {

int stop_start_late(const fs::path& storage) {
  ::alarm(60); // Should the start not come to the failpoint.
  auto passed = storage / "passed";
  if (::mkfifo(passed.c_str(), 0600) != 0)
    return 1;
  // The start opens this pipe and waits, because it is full.
  unique_fd pipe{::open(passed.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC)};
  const std::string filling(65536, '.');
  while (::write(pipe.get(), filling.data(), filling.size()) > 0)
    continue;
  unique_fd openings{::inotify_init1(IN_CLOEXEC)};
  if (::fcntl(pipe.get(), F_SETFL, O_RDWR) != 0
      || ::inotify_add_watch(openings.get(), passed.c_str(), IN_OPEN) < 0
      || ::setenv("TROUPE_FAILPOINT_LOG", passed.c_str(), 1) != 0
      || !arm_failpoint("attempt.state_saved=eio"))
    return 1;
  own_system system;
  std::stop_source ending;
  std::jthread service{[&] {
    char event[1024];
    (void) !::read(openings.get(), event, sizeof(event));
    ending.request_stop();
    read_until(pipe.get(), "\n");
  }};
  train_options options{.scaling = {.num_workers = 0}};
  options.run.name = "run";
  options.run.storage_path = storage;
  fault_plan plan{.action = "leave", .steps = 1000};
  auto handle = data_parallel_trainer{counting_loop, plan, options}.start(
    system, ending.get_token());
  if (!handle)
    return 2;
  return handle->wait().status == run_status_kind::preempted ? 0 : 3;
}

TEST_F(run_test, a_stop_of_a_start_that_has_begun_an_attempt_preempts_it) {
  auto child = ::fork();
  if (child == 0) {
    ::execl("/proc/self/exe", "run_test", "--stop-late",
            storage_.path().c_str(), nullptr);
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

class start_beside_old_ranks : public run_test {
protected:
  /// What a rank of an earlier driver holds that has not ended.
  unique_fd old_rank() {
    auto dead = run_store::open(resolve(config())).value();
    EXPECT_TRUE(dead->begin_attempt());
    return join_attempt(dead->ticket().value()).value();
  }

  /// How often process *pid* has opened the file that such ranks lock.
  int openings_of_ranks(pid_t pid) {
    boost::system::error_code gone;
    fs::directory_iterator i{"/proc/" + std::to_string(pid) + "/fd", gone}, end;
    int result = 0;
    for (; !gone && i != end; i.increment(gone))
      result += fs::read_symlink(i->path(), gone) == run_path() / "ranks";
    return result;
  }
};

TEST_F(start_beside_old_ranks, returns_when_a_service_has_to_end) {
  auto rank = old_rank();
  auto before = openings_of_ranks(getpid());
  own_system system;
  std::stop_source ending;
  std::jthread service{[&] {
    wait_for(run_path(), [&] { return openings_of_ranks(getpid()) > before; });
    ending.request_stop();
  }};
  train_options options{.scaling = {.num_workers = 0}, .run = config()};
  auto handle =
    data_parallel_trainer{counting_loop, fault_plan{}, options}.start(
      system, ending.get_token());
  ASSERT_FALSE(handle);
  EXPECT_EQ(handle.error().code, ec::stopped);
  EXPECT_THAT(handle.error().message, testing::EndsWith(resumed_by("run")));
  auto left = result::from_path(run_path());
  ASSERT_TRUE(left) << left.error().message;
  EXPECT_EQ(left->status, run_status_kind::preempted);
}

TEST_F(start_beside_old_ranks, promises_no_resumption_unless_asked_to_stop) {
  auto rank = old_rank();
  own_system system;
  int asked = 0;
  run_surroundings around;
  around.given_up = [&] { return asked++ > 0; }; // Once it has its folder.
  around.end_of_given_up = failed_result;
  auto handle =
    prepare({{.num_workers = 0},
             config(),
             train_loop::make(counting_loop, no_backend{}, fault_plan{})})
      .and_then([&](prepared_request x) {
        return run_access::start(std::move(x), system, around);
      });
  ASSERT_FALSE(handle);
  EXPECT_EQ(handle.error().code, ec::stopped);
  EXPECT_THAT(handle.error().message,
              testing::Not(testing::EndsWith(resumed_by("run"))));
}

class preemption_at_the_start : public start_beside_old_ranks,
                                public testing::WithParamInterface<int> {};

TEST_P(preemption_at_the_start, ends_the_wait_for_old_ranks) {
  auto rank = old_rank();
  for (auto action : {"leave", "leave_inline"}) {
    victim program{storage_.path().string(), action};
    wait_for(run_path(), [&] { return openings_of_ranks(program.pid()) > 0; });
    program.kill(GetParam());
    auto status = program.wait();
    ASSERT_TRUE(WIFEXITED(status)) << action;
    EXPECT_EQ(WEXITSTATUS(status), GetParam() == SIGINT ? 42 : 43) << action;
    auto left = result::from_path(run_path());
    ASSERT_TRUE(left) << left.error().message;
    EXPECT_EQ(left->status, GetParam() == SIGINT ? run_status_kind::aborted
                                                 : run_status_kind::preempted)
      << action;
    ASSERT_TRUE(left->error) << action;
    EXPECT_TRUE(left->error->message.ends_with(resumed_by("run")))
      << left->error->message;
  }
}

INSTANTIATE_TEST_SUITE_P(signals, preemption_at_the_start,
                         testing::Values(SIGTERM, SIGINT));

} // namespace troupe::internal::test
