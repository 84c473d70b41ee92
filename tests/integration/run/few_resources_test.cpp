// Runs in processes that may have only so many threads or descriptors, or so
// little memory: whatever is missing, `fit()` returns.

#include <dlfcn.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <new>
#include <string>

#include <gtest/gtest.h>

#include <troupe/sweep.hpp>
#include <troupe/train.hpp>

#include "tests/support/temporary_folder.hpp"

extern char** environ;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool counts_threads = false; // Sanitizers start threads themselves.
std::atomic<int> threads_left;
std::atomic<int> allocations_left;
#else
constexpr bool counts_threads = true;

/// How many threads may be started beside those that there are.
std::atomic<int> threads_left = std::numeric_limits<int>::max();

namespace {

struct counted_thread {
  void* (*body)(void*);
  void* argument;
};

void* run_counted(void* x) {
  auto [body, argument] = *static_cast<counted_thread*>(x);
  delete static_cast<counted_thread*>(x);
  auto result = body(argument);
  ++threads_left;
  return result;
}

} // namespace

/// Instead of the C library's: a host that has no more threads.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* options,
                              void* (*body)(void*), void* argument) noexcept {
  static auto create = reinterpret_cast<decltype(&pthread_create)>(
    dlsym(RTLD_NEXT, "pthread_create"));
  if (--threads_left < 0) {
    ++threads_left;
    return EAGAIN;
  }
  auto error =
    create(thread, options, run_counted, new counted_thread{body, argument});
  if (error != 0)
    ++threads_left;
  return error;
}

/// How often memory may be allocated.
std::atomic<int> allocations_left = std::numeric_limits<int>::max();

// Not inlined: callers in this batch would pair them with malloc and free.
[[gnu::noinline]] void* operator new(std::size_t size) {
  auto refused = allocations_left != std::numeric_limits<int>::max()
                 && --allocations_left < 0;
  if (auto result = refused ? nullptr : std::malloc(size == 0 ? 1 : size))
    return result;
  throw std::bad_alloc{};
}

[[gnu::noinline]] void operator delete(void* x) noexcept {
  std::free(x);
}

[[gnu::noinline]] void operator delete(void* x, std::size_t) noexcept {
  std::free(x);
}
#endif

namespace troupe::internal::test {

namespace {

void saving_loop(train_context& context) {
  for (int i = 0; i < 2; ++i) {
    auto data = context.new_checkpoint();
    std::ofstream{
      (data.path() / ("rank" + std::to_string(context.rank()))).string()}
      << i;
    context.report({{"i", i}}, std::move(data));
  }
}

/// Whether the run's journal has an end for each attempt, and none of a run
/// that someone stopped.
bool has_its_end(const std::string& storage) {
  std::ifstream journal{storage + "/run/journal.jsonl"};
  std::string text{std::istreambuf_iterator<char>{journal}, {}};
  return text.find("\"aborted\"") == std::string::npos
         && (text.find("attempt_begun") == std::string::npos
             || text.find("run_ended") != std::string::npos);
}

constexpr int finished = 0, failed = 3;

/// Of a run that is refused, which the console is to say. The exit code.
int fit_without_memory(train_options options, int allocations) {
  options.run.name = "a/name";
  options.run.quiet = false;
  data_parallel_trainer trainer{saving_loop, std::move(options)};
  allocations_left = allocations;
  auto outcome = trainer.fit();
  auto left = allocations_left.exchange(std::numeric_limits<int>::max());
  if (!outcome.error || outcome.error->message.empty())
    return failed + 1;
  return left < 0 ? failed : finished;
}

struct width_config {
  int width = 0;

  TROUPE_FIELDS(width)
};

void report_width(train_context& context, const width_config& cfg) {
  context.report({{"loss", cfg.width}});
}

/// A sweep of one trial; the exit code.
int search_with(train_options options) {
  auto outcome = sweep{data_parallel_trainer{report_width, width_config{},
                                             std::move(options)},
                       {{"width", integers(1, 1)}},
                       {.metric = "loss", .searcher = grid_search()}}
                   .fit();
  if (outcome.error && outcome.error->message.empty())
    return failed + 1;
  return !outcome.error && outcome.best() ? finished : failed;
}

/// What such a process does; its exit code.
int be_poor(int argc, char** argv) {
  ::close_range(3, ~0u, 0); // What the test's own caller has left open.
  std::string what = argv[1];
  auto amount = std::stoi(argv[2]);
  if (what == "--threads")
    threads_left = amount;
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit limit{static_cast<rlim_t>(amount), before.rlim_max};
  if (what == "--descriptors")
    setrlimit(RLIMIT_NOFILE, &limit);
  alarm(60);
  troupe::init(argc, argv);
  if (what == "--late-descriptors")
    setrlimit(RLIMIT_NOFILE, &limit);
  train_options options{.scaling = {.num_workers = std::stoi(argv[3])}};
  options.run.name = "run";
  options.run.storage_path = argv[4];
  options.run.start_timeout = std::chrono::seconds{2};
  options.run.failure.controller_failure_limit = 0;
  options.run.quiet = true;
  if (what == "--memory")
    return fit_without_memory(std::move(options), amount);
  if (what == "--sweep-descriptors") {
    setrlimit(RLIMIT_NOFILE, &limit);
    return search_with(std::move(options));
  }
  auto outcome = data_parallel_trainer{saving_loop, options}.fit();
  if (!outcome.error)
    return finished;
  if (what == "--late-descriptors") // The journal needs one to be read.
    setrlimit(RLIMIT_NOFILE, &before);
  if (!has_its_end(argv[4]))
    return failed + 2;
  return outcome.error->message.empty() ? failed + 1 : failed;
}

/// The exit code of one, or 128 and the signal that ended it.
int run_poor(const char* what, int amount, int workers) {
  temporary_folder storage;
  auto number = std::to_string(amount), ranks = std::to_string(workers),
       path = storage.path().string();
  std::string program = "/proc/self/exe", kind = what;
  char* arguments[] = {program.data(), kind.data(), number.data(),
                       ranks.data(),   path.data(), nullptr};
  pid_t pid = -1;
  posix_spawn(&pid, program.c_str(), nullptr, nullptr, arguments, environ);
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// More and more from *least* on, until it is enough.
void expect_results(const char* what, int least, int workers) {
  for (auto amount = least;; ++amount) {
    ASSERT_LT(amount, 200);
    auto code = run_poor(what, amount, workers);
    if (code == finished)
      return;
    EXPECT_EQ(code, failed)
      << what << ' ' << amount << ", " << workers << " workers";
  }
}

} // namespace

TEST(few_resources_test, fit_returns_however_few_threads_there_are) {
  if (!counts_threads)
    GTEST_SKIP() << "a sanitizer counts threads, too";
  for (int workers : {0, 1})
    expect_results("--threads", 0, workers);
}

TEST(few_resources_test, fit_returns_however_few_descriptors_there_are) {
  if (!counts_threads)
    GTEST_SKIP() << "a sanitizer opens pipes to look at memory";
  expect_results("--descriptors", 3, 2);
  expect_results("--late-descriptors", 3, 2);
  expect_results("--late-descriptors", 4, 0);
}

TEST(few_resources_test, a_sweep_returns_however_few_descriptors_there_are) {
  if (!counts_threads)
    GTEST_SKIP() << "a sanitizer opens pipes to look at memory";
  expect_results("--sweep-descriptors", 6, 1);
}

TEST(few_resources_test, fit_returns_however_little_memory_there_is) {
  if (!counts_threads)
    GTEST_SKIP() << "a sanitizer allocates itself";
  expect_results("--memory", 0, 0);
}

} // namespace troupe::internal::test

int main(int argc, char** argv) {
  if (argc == 5)
    return troupe::internal::test::be_poor(argc, argv);
  troupe::init(argc, argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
