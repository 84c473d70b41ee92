// Which cores and GPUs the runs of one process have that are under way at the
// same time.

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <troupe/actors.hpp>

#include "tests/integration/run/run_test.hpp"
#include "tests/support/own_system.hpp"
#include "tests/support/pretended_gpus.hpp"
#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/process/usable_cores.hpp"

namespace troupe::internal::test {

namespace {

constexpr int no_gpus_pretended = 77;

/// Reports what it has until it is asked to stop.
void report_resources(train_context& context, const fault_plan&) {
  auto& gpus = context.gpus();
  auto cores = static_cast<int>(own_cores().numbers.size());
  auto threads = std::getenv("OMP_NUM_THREADS");
  while (!context.stop_requested())
    context.report({{"gpu", gpus.empty() ? -1 : gpus.front()},
                    {"cores", cores},
                    {"threads", threads ? std::atoi(threads) : 0}});
}

/// One worker that claims *cores*.
scaling_config one_worker(double cores) {
  scaling_config result{.num_workers = 1};
  result.resources_per_worker.cpus = cores;
  return result;
}

/// A run that has made a report.
run_handle begin_run(caf::actor_system& system, const fs::path& storage,
                     const std::string& name, const scaling_config& scaling) {
  train_options options{.scaling = scaling};
  options.run.name = name;
  options.run.storage_path = storage;
  options.run.quiet = true;
  auto result = data_parallel_trainer{report_resources, fault_plan{}, options}
                  .start(system)
                  .value();
  while (result.status().reports == 0 && !is_terminal(result.status().state))
    std::this_thread::yield();
  return result;
}

/// What its rank 0 has.
metric_value resource_of(const run_handle& x, const char* what) {
  return x.status().last_metrics.at(what);
}

/// Its warnings and the rest.
std::string journal_of_run(const fs::path& storage, const char* name) {
  return bytes_of(storage / name / "journal.jsonl");
}

/// The GPU of a run that begins after one whose rank, a thread, has not left
/// its loop.
std::string gpu_beside_left_thread(caf::actor_system& system,
                                   const fs::path& storage) {
  std::atomic<bool> is_inside = false;
  std::atomic<bool> may_leave = false;
  auto stay = [&](train_context&) {
    is_inside = true;
    while (!may_leave)
      std::this_thread::yield();
  };
  scaling_config scaling{.num_workers = 1, .use_gpu = true};
  train_options options{.scaling = scaling};
  options.scaling.where = placement::in_process;
  options.run.name = "thread";
  options.run.storage_path = storage;
  options.run.stop_timeout = std::chrono::milliseconds{100};
  auto run =
    data_parallel_trainer{in_process_loop{stay}, options}.start(system).value();
  while (!is_inside && !is_terminal(run.status().state))
    std::this_thread::yield();
  run.abort();
  (void) run.wait();
  auto beside = begin_run(system, storage, "beside", scaling);
  auto result = to_string(resource_of(beside, "gpu"));
  may_leave = true;
  while (run.threads_left_behind() > 0)
    std::this_thread::yield();
  return result;
}

} // namespace

int run_on_gpus(const fs::path& storage) {
  if (!pretend_gpus(4, storage / "dev"))
    return no_gpus_pretended;
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  own_system system;
  fs::ofstream{storage / "left"} << gpu_beside_left_thread(system, storage);
  scaling_config scaling{.num_workers = 2, .use_gpu = true};
  auto first = begin_run(system, storage, "first", scaling);
  auto second = begin_run(system, storage, "second", scaling);
  auto third = begin_run(system, storage, "third", scaling);
  fs::ofstream out{storage / "gpus"};
  for (auto run : {&first, &second, &third})
    out << to_string(resource_of(*run, "gpu")) << ' ';
  train_options options{.scaling = scaling};
  options.run.storage_path = storage;
  options.run.worker_env = {{"CUDA_VISIBLE_DEVICES", "2"}};
  auto shown_one =
    data_parallel_trainer{report_resources, fault_plan{}, options}.start(
      system);
  fs::ofstream{storage / "refusal"}
    << (shown_one ? "none" : shown_one.error().message);
  return 0;
}

TEST_F(run_test, runs_side_by_side_share_gpus_only_if_there_are_too_few) {
  fs::create_directory(storage_ / "dev");
  auto child = ::fork();
  if (child == 0) {
    ::execl("/proc/self/exe", "run_test", "--on-gpus", storage_.path().c_str(),
            nullptr);
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == no_gpus_pretended)
    GTEST_SKIP() << "no mounts for pretended GPUs";
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(bytes_of(storage_ / "left"), "1");
  EXPECT_EQ(bytes_of(storage_ / "gpus"), "0 2 0 ");
  using testing::HasSubstr;
  using testing::Not;
  EXPECT_THAT(bytes_of(storage_ / "refusal"),
              HasSubstr("2 workers ask for 2 gpus, this host has 1"))
    << "worker_env shows one";
  EXPECT_THAT(journal_of_run(storage_.path(), "second"),
              Not(HasSubstr("shares")));
  EXPECT_THAT(journal_of_run(storage_.path(), "third"),
              HasSubstr("shares 2 GPUs"));
}

// Another program has the same cores, and would be pinned to the first ones.
TEST_F(run_test, a_run_that_claims_cores_has_as_many_but_none_in_particular) {
  auto own = own_cores();
  if (own.count < 2)
    GTEST_SKIP() << "a run that claims nothing has one, too";
  ::unsetenv("OMP_NUM_THREADS");
  own_system system;
  auto first = begin_run(system, storage_.path(), "first", one_worker(1));
  auto second = begin_run(system, storage_.path(), "second", one_worker(1));
  auto all = static_cast<int>(own.numbers.size());
  for (auto run : {&first, &second}) {
    EXPECT_EQ(resource_of(*run, "cores"), metric_value{all});
    EXPECT_EQ(resource_of(*run, "threads"), metric_value{1});
  }
  EXPECT_THAT(journal_of_run(storage_.path(), "second"),
              testing::Not(testing::HasSubstr("shares")));
}

TEST_F(run_test, cores_are_free_once_a_run_is_over) {
  own_system system;
  auto scaling = one_worker(own_cores().count);
  auto first = begin_run(system, storage_.path(), "first", scaling);
  first.finish();
  while (!is_terminal(first.status().state)) // No one has waited for it.
    std::this_thread::yield();
  auto second = begin_run(system, storage_.path(), "second", scaling);
  EXPECT_THAT(journal_of_run(storage_.path(), "second"),
              testing::Not(testing::HasSubstr("shares")));
}

TEST_F(run_test, a_run_that_claims_a_part_of_a_core_has_one) {
  if (own_cores().count < 2)
    GTEST_SKIP() << "a run that claims nothing has one, too";
  ::unsetenv("OMP_NUM_THREADS");
  own_system system;
  auto half = begin_run(system, storage_.path(), "half", one_worker(0.5));
  EXPECT_EQ(resource_of(half, "threads"), metric_value{1});
}

TEST_F(run_test, a_run_says_how_many_of_its_cores_others_have) {
  auto cores = own_cores().count;
  own_system system;
  auto scaling = one_worker(cores);
  auto first = begin_run(system, storage_.path(), "first", scaling);
  auto second = begin_run(system, storage_.path(), "second", scaling);
  auto warning = testing::HasSubstr(concat(
    "the run shares ", counted(static_cast<std::uint64_t>(cores), "core"),
    " with other runs of this program"));
  EXPECT_THAT(journal_of_run(storage_.path(), "first"), testing::Not(warning));
  EXPECT_THAT(journal_of_run(storage_.path(), "second"), warning);
}

} // namespace troupe::internal::test
