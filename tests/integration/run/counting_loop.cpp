#include <pthread.h>
#include <spawn.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <thread>

#include "tests/integration/run/run_test.hpp"

namespace troupe::internal::test {

namespace {

/// Output that is never written, such as a log on storage that hangs.
struct hanging_buffer : std::streambuf {
  int sync() override {
    for (;;)
      pause();
  }
};

/// Starts a process without end, such as the worker of a data loader.
void leave_child(bool in_a_session_of_its_own) {
  int ready[2];
  if (pipe(ready) != 0 || fork() != 0) {
    char byte;
    close(ready[1]);
    (void) !read(ready[0], &byte, 1);
    close(ready[0]);
    return;
  }
  if (in_a_session_of_its_own)
    setsid();
  (void) !write(ready[1], "r", 1);
  for (;;)
    pause();
}

void leave_program_in_a_session() {
  std::string name = "sleep", time = "600";
  char* arguments[] = {name.data(), time.data(), nullptr};
  posix_spawnattr_t with;
  posix_spawnattr_init(&with);
  posix_spawnattr_setflags(&with, POSIX_SPAWN_SETSID);
  pid_t pid = -1;
  (void) posix_spawnp(&pid, "sleep", nullptr, &with, arguments, environ);
  posix_spawnattr_destroy(&with);
}

void misbehave(train_context& context, const fault_plan& plan) {
  if (plan.action == "throw")
    throw std::runtime_error{"the loss is a banana"};
  if (plan.action == "exit")
    std::exit(3);
  if (plan.action == "segfault") {
    std::signal(SIGSEGV, SIG_DFL); // sanitizers have a handler of their own
    raise(SIGSEGV);
  }
  if (plan.action == "kill")
    raise(SIGKILL);
  if (plan.action == "stop")
    raise(SIGSTOP);
  if (plan.action == "thread_throw")
    std::thread{[] {
      throw std::out_of_range{"the helper thread fell"};
    }}.join();
  if (plan.action == "return")
    return;
  if (plan.action == "throw_number")
    throw 7;
  if (plan.action == "stage_and_wait") {
    static auto left = context.new_checkpoint();
    write_bytes(left.path() / "half.bin", "half");
    context.barrier();
    write_bytes(left.path() / "all_are_here", "");
  }
  if (plan.action == "wait_forever" || plan.action == "stage_and_wait")
    for (;;)
      pause();
  if (plan.action == "print") {
    std::cout << "a line that a rank prints on stdout" << std::endl;
    std::cerr << "a line that a rank prints on stderr" << std::endl;
  }
  if (plan.action == "hang_at_exit")
    std::cout.rdbuf(new hanging_buffer);
  if (plan.action == "leave_child" || plan.action == "leave_session")
    leave_child(plan.action == "leave_session");
  if (plan.action == "leave_session_program")
    leave_program_in_a_session();
  if (plan.action == "leave_program")
    (void) !std::system("sleep 600 &");
  if (plan.action == "huge_metrics")
    context.report({{"text", std::string(5 << 20, 'x')}});
  if (plan.action == "many_metrics") {
    metrics norms;
    for (int i = 0; i < 10'000; ++i)
      norms["gradient_norm/layer_" + std::to_string(i)] = 0.5 * i;
    context.report(norms);
  }
  if (plan.action == "empty_name")
    context.report({{"", 1}});
  if (plan.action == "empty_checkpoint")
    context.report({{"x", 1}}, context.new_checkpoint());
  if (plan.action == "missing_folder")
    context.report({{"x", 1}}, checkpoint::from_directory(plan.text));
  if (plan.action == "huge_broadcast")
    context.broadcast_from_rank_zero(std::string(2 << 20, 'x'));
  if (plan.action == "survived_huge_broadcast")
    try {
      context.broadcast_from_rank_zero(std::string(2 << 20, 'x'));
    } catch (const train_error& x) {
      context.report({{"refused", x.what()}});
    }
}

bool is_due(const train_context& context, const fault_plan& plan, int step) {
  return !plan.action.empty() && step == plan.step
         && (plan.rank < 0 || plan.rank == context.rank())
         && (plan.attempt < 0
             || plan.attempt == static_cast<int>(context.attempt()));
}

} // namespace

void counting_loop(train_context& context, const fault_plan& plan) {
  int step = 0;
  if (auto& last = context.checkpoint())
    std::ifstream{(last->path() / "step.txt").string()} >> step;
  for (; step < plan.steps; ++step) {
    if (plan.action == "leave" && context.stop_requested())
      return;
    if (is_due(context, plan, step)) {
      misbehave(context, plan);
      if (plan.action == "return")
        return;
    }
    metrics values{{"step", step}, {"rank", context.rank()}};
    auto all = plan.checkpoint_by == -2;
    if (!all && plan.checkpoint_by != context.rank()) {
      context.report(values);
      continue;
    }
    auto files = context.new_checkpoint();
    auto name = all ? "rank_" + std::to_string(context.rank()) + ".txt"
                    : std::string{"step.txt"};
    if (plan.action == "same_file")
      name = "model.bin";
    std::ofstream{(files.path() / name).string()} << step + 1 << '\n';
    if (all && context.rank() == 0 && plan.action != "same_file")
      std::ofstream{(files.path() / "step.txt").string()} << step + 1 << '\n';
    context.report(values, std::move(files));
  }
}

const rank_failure& only_failure(const result& x, int rank) {
  static const rank_failure none{};
  EXPECT_TRUE(x.error) << "the run did not fail";
  if (!x.error)
    return none;
  EXPECT_EQ(x.error->ranks.size(), 1u) << x.error->message;
  auto i = x.error->ranks.find(rank);
  EXPECT_NE(i, x.error->ranks.end()) << x.error->message;
  return i == x.error->ranks.end() ? none : i->second;
}

} // namespace troupe::internal::test
