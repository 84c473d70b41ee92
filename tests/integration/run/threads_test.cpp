// Loops as threads of this process, and on the thread that calls fit().

#include <sys/mman.h>

#include <atomic>
#include <csignal>
#include <future>
#include <memory>
#include <new>
#include <thread>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <gmock/gmock.h>
#include <troupe/actors.hpp>

#include "tests/integration/run/run_test.hpp"
#include "tests/support/own_system.hpp"
#include "troupe/actors/thread_launcher.hpp"
#include "troupe/trainers/run_parts.hpp"

namespace troupe::internal::test {

TEST_F(run_test, the_loop_of_an_inline_run_is_on_the_thread_that_calls_fit) {
  std::vector<std::thread::id> threads;
  auto loop = [&](train_context& context) {
    threads.push_back(std::this_thread::get_id());
    context.report({{"attempt", context.attempt()}});
    if (context.attempt() < 2)
      throw std::runtime_error{"once more"};
  };
  train_options options{.scaling = {.num_workers = 0}, .run = config()};
  options.run.failure.max_failures = 2;
  auto outcome = data_parallel_trainer{in_process_loop{loop}, options}.fit();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(threads, std::vector(3, std::this_thread::get_id()));
}

/// A config whose copy fails at the *left*-th from now on.
struct copied_with_effort {
  copied_with_effort() = default;
  copied_with_effort(const copied_with_effort&) {
    if (left > 0 && --left == 0)
      throw std::bad_alloc{};
  }

  static inline std::atomic<int> left{0};
};

TEST_F(run_test, a_closure_that_cannot_be_copied_ends_the_run_not_the_program) {
  auto loop = [x = copied_with_effort{}](train_context& context) {
    context.report({{"x", 1}});
  };
  auto failures = 0;
  for (int workers : {0, 1})
    for (int nth = 1; nth <= 12; ++nth) {
      train_options options{
        .scaling = {.num_workers = workers, .where = placement::in_process},
        .run = config(std::to_string(workers) + "-" + std::to_string(nth))};
      data_parallel_trainer trainer{in_process_loop{loop}, options};
      copied_with_effort::left = nth;
      auto outcome = trainer.fit();
      auto failed = copied_with_effort::left.exchange(0) == 0;
      failures += failed;
      // A rank that could not be started is started again.
      EXPECT_EQ(outcome.error || outcome.attempts > 1, failed)
        << workers << ' ' << nth;
    }
  EXPECT_GT(failures, 4);
}

TEST_F(run_test, a_closure_that_cannot_be_copied_is_an_error_of_a_start) {
  own_system system;
  auto loop = [x = copied_with_effort{}](train_context&) {};
  data_parallel_trainer trainer{
    in_process_loop{loop},
    train_options{.scaling = {.num_workers = 0}, .run = config()}};
  copied_with_effort::left = 1;
  auto handle = trainer.start(system);
  ASSERT_FALSE(handle);
  EXPECT_EQ(handle.error().message.find("the run could not be prepared"), 0u)
    << handle.error().message;
}

TEST_F(run_test, an_inline_run_shows_its_progress_and_how_it_ended) {
  train_options options{.scaling = {.num_workers = 0}, .run = config()};
  options.run.quiet = false;
  testing::internal::CaptureStderr();
  auto outcome = run({.steps = 2}, options);
  auto shown = testing::internal::GetCapturedStderr();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_THAT(shown, testing::HasSubstr("step=1"));
  EXPECT_THAT(shown, testing::HasSubstr("finished"));
}

TEST_F(run_test, a_run_on_one_host_says_that_it_writes_no_ticket) {
  train_options options{.scaling = {.num_workers = 0}, .run = config()};
  options.run.quiet = false;
  options.run.agent_ticket = storage_ / "ticket";
  testing::internal::CaptureStderr();
  auto outcome = run({.steps = 2}, options);
  auto shown = testing::internal::GetCapturedStderr();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_THAT(shown, testing::HasSubstr("no ticket is written"));
  EXPECT_FALSE(fs::exists(storage_ / "ticket"));
}

TEST_F(run_test, an_inline_loop_is_waited_for_however_long_it_stays) {
  train_options options{.scaling = {.num_workers = 0}, .run = config()};
  options.run.stop_timeout = std::chrono::milliseconds{1};
  auto journal = run_path() / "journal.jsonl";
  auto stay = [&](train_context& context) {
    raise(SIGINT);
    while (bytes_of(journal).find("the run waits for it") == std::string::npos)
      std::this_thread::yield();
    context.report({{"x", 1}});
  };
  auto outcome = data_parallel_trainer{in_process_loop{stay}, options}.fit();
  EXPECT_EQ(outcome.status, run_status_kind::aborted);
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ec::stopped);
  EXPECT_TRUE(outcome.error->ranks.empty());
}

TEST_F(run_test, a_lent_thread_returns_if_the_driver_dies) {
  own_system system;
  auto thread = std::make_shared<lent_thread>();
  auto handle =
    prepare({{.num_workers = 0},
             config(),
             train_loop::make(counting_loop, no_backend{},
                              fault_plan{.steps = 1'000'000'000})})
      .and_then([&](prepared_request x) {
        return run_access::start(std::move(x), system, {.thread = thread});
      });
  ASSERT_TRUE(handle) << handle.error().message;
  result outcome;
  std::thread other{[&] {
    while (handle->status().reports < 3)
      std::this_thread::yield();
    caf::anon_send_exit(handle->control(), caf::exit_reason::kill);
    outcome = handle->wait();
    thread->take_back();
  }};
  thread->serve();
  other.join();
  EXPECT_EQ(outcome.status, run_status_kind::errored);
  EXPECT_EQ(handle->threads_left_behind(), 0);
}

TEST_F(run_test, a_system_without_a_network_thread_is_refused) {
  register_messages();
  caf::actor_system_config settings;
  caf::actor_system system{settings};
  for (auto where : {placement::processes, placement::in_process}) {
    train_options options{.scaling = {.num_workers = 1, .where = where},
                          .run = config()};
    auto handle =
      data_parallel_trainer{counting_loop, fault_plan{}, options}.start(system);
    ASSERT_FALSE(handle);
    EXPECT_EQ(handle.error().code, ec::invalid_config);
    EXPECT_THAT(handle.error().message,
                testing::HasSubstr("load caf::io::middleman"));
  }
  EXPECT_FALSE(fs::exists(run_path()));
}

TEST_F(run_test, a_run_without_workers_has_a_thread_of_its_own_in_a_service) {
  own_system system;
  std::thread::id thread;
  auto loop = [&](train_context& context) {
    thread = std::this_thread::get_id();
    context.report({{"world_size", context.world_size()}});
  };
  auto handle =
    data_parallel_trainer{
      in_process_loop{loop},
      train_options{.scaling = {.num_workers = 0}, .run = config()}}
      .start(system);
  ASSERT_TRUE(handle) << handle.error().message;
  auto outcome = handle->wait();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.metrics, (metrics{{"world_size", 1}}));
  EXPECT_NE(thread, std::this_thread::get_id());
}

TEST_F(run_test, a_closure_runs_in_threads) {
  std::atomic<int> sum{0};
  auto loop = [&sum](train_context& context) {
    sum += context.rank() + 1;
    context.barrier();
    context.report({{"sum", sum.load()}});
  };
  train_options options{
    .scaling = {.num_workers = 3, .where = placement::in_process},
    .run = config()};
  auto outcome = data_parallel_trainer{in_process_loop{loop}, options}.fit();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(sum, 6);
}

TEST_F(run_test, a_closure_is_refused_in_processes) {
  int x = 0;
  auto loop = [&x](train_context&) { ++x; };
  auto outcome =
    data_parallel_trainer{
      in_process_loop{loop},
      train_options{.scaling = {.num_workers = 2}, .run = config()}}
      .fit();
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ec::invalid_config);
  EXPECT_EQ(x, 0);
}

TEST(thread_launcher_test, forgets_its_function_once_no_thread_is_in_its_loop) {
  auto owned = std::make_shared<int>(0);
  std::weak_ptr<int> alive = owned;
  std::promise<void> leave;
  auto body = [owned = std::move(owned), go = leave.get_future().share()](
                std::uint64_t, int, int) { go.wait(); };
  thread_launcher launcher{std::move(body)};
  unique_fd memory{::memfd_create("segment", MFD_CLOEXEC)};
  launcher.launch(0, 0, memory.get(), [](const rank_launcher::event&) {});
  launcher.forget();
  EXPECT_FALSE(alive.expired());
  leave.set_value();
  launcher.join();
  launcher.forget();
  EXPECT_TRUE(alive.expired());
}

TEST_F(run_test, a_thread_that_stays_in_its_loop_is_left_behind) {
  // Released at the end, so that the test leaves no thread either.
  static std::atomic<bool> release;
  static std::atomic<bool> inside;
  static std::atomic<bool> left;
  release = inside = left = false;
  auto loop = [](train_context& context) {
    if (context.rank() == 0) {
      while (!inside)
        std::this_thread::yield();
      throw std::runtime_error{"off"};
    }
    inside = true;
    while (!release)
      std::this_thread::yield();
    left = true;
  };
  train_options options{
    .scaling = {.num_workers = 2, .where = placement::in_process},
    .run = config()};
  options.run.stop_timeout = std::chrono::milliseconds{100};
  auto outcome = data_parallel_trainer{in_process_loop{loop}, options}.fit();
  ASSERT_TRUE(outcome.error);
  EXPECT_NE(outcome.error->message.find("left behind"), std::string::npos)
    << outcome.error->message;
  release = true;
  while (!left)
    std::this_thread::yield();
}

} // namespace troupe::internal::test
