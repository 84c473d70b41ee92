// Peers that do not belong to the run, code that does not belong to the
// program, and calls that do not belong to the loop.

#include <dlfcn.h>
#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <sstream>
#include <thread>

#include "tests/integration/run/report_hook.hpp"
#include "tests/integration/run/run_test.hpp"
#include "tests/support/child.hpp"
#include "troupe/runtime/process/unique_fd.hpp"

namespace troupe::test {

namespace {

/// The socket of the run of this process.
fs::path own_socket() {
  auto mark = "-" + std::to_string(getpid()) + "-";
  std::istringstream table{bytes_of("/proc/net/unix")};
  for (std::string line; std::getline(table, line);) {
    auto at = line.find('/');
    if (at != std::string::npos && line.find("/troupe-") != std::string::npos
        && line.find(mark) != std::string::npos)
      return line.substr(at);
  }
  return {};
}

unique_fd connect_to(const fs::path& path) {
  unique_fd result{socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  if (connect(result.get(), reinterpret_cast<sockaddr*>(&address),
              sizeof(address))
      != 0)
    result.reset();
  return result;
}

constexpr int strange_user = 65534;

/// Exit code of a process of another user that connects to *path*. 0: it was
/// turned away without a byte, 2: there was no way in, 3: it was greeted.
int knock_as_stranger(const fs::path& path) {
  return run_in_child([&] {
    if (setgroups(0, nullptr) != 0 || setgid(strange_user) != 0
        || setuid(strange_user) != 0)
      _exit(1);
    auto door = connect_to(path);
    if (!door)
      _exit(2);
    char byte;
    _exit(recv(door.get(), &byte, 1, 0) <= 0 ? 0 : 3);
  });
}

} // namespace

class strangers_test : public run_test {
protected:
  train_options options() {
    return {.scaling = {.num_workers = 2}, .run = config()};
  }

  /// Runs 20 reports, with *act* after the third, and expects them all.
  void expect_unaffected(std::function<void()> act) {
    auto given = options();
    given.run.callbacks = {on_report(2, std::move(act))};
    auto outcome = run({.steps = 20}, given);
    ASSERT_FALSE(outcome.error) << outcome.error->message;
    EXPECT_EQ(outcome.attempts, 1u);
    auto rows = outcome.metrics_history();
    ASSERT_TRUE(rows);
    EXPECT_EQ(rows->size(), 20u);
  }
};

TEST_F(strangers_test, noise_on_the_socket_of_a_run_changes_nothing) {
  std::vector<unique_fd> silent;
  auto sent = 0;
  expect_unaffected([&] {
    auto path = own_socket();
    ASSERT_FALSE(path.empty());
    std::string noise(64 * 1024, '\xff');
    for (int i = 0; i < 10; ++i) {
      silent.push_back(connect_to(path)); // and never says a word
      auto noisy = connect_to(path);
      ASSERT_TRUE(noisy);
      sent += send(noisy.get(), noise.data(), noise.size(), MSG_NOSIGNAL) > 0;
    }
  });
  EXPECT_EQ(sent, 10);
}

TEST_F(strangers_test, another_user_does_not_get_in) {
  if (geteuid() != 0)
    GTEST_SKIP() << "needs root to act as another user";
  int closed = 0, opened = 0;
  expect_unaffected([&] {
    auto path = own_socket();
    ASSERT_FALSE(path.empty());
    closed = knock_as_stranger(path);
    // Two doors that stand open here, to reach the third.
    chmod(path.parent_path().c_str(), 0711);
    chmod(path.c_str(), 0666);
    opened = knock_as_stranger(path);
  });
  EXPECT_EQ(WEXITSTATUS(closed), 2);
  EXPECT_EQ(WEXITSTATUS(opened), 0);
}

TEST_F(strangers_test, a_library_of_another_build_is_refused) {
  // Loaded by this program from one build; ranks find another in its place.
  auto path = storage_ / "loop.so";
  write_bytes(path, bytes_of(TROUPE_TEST_LOOP));
  auto library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_TRUE(library) << dlerror();
  auto loop = reinterpret_cast<void (*)(train_context&)>(
    dlsym(library, "loop_of_a_library"));
  ASSERT_TRUE(loop) << dlerror();
  auto first = data_parallel_trainer{loop, options()}.fit();
  EXPECT_FALSE(first.error) << first.error->message;
  auto bytes = bytes_of(path);
  auto note = bytes.find(std::string{"\x14\0\0\0\x03\0\0\0GNU\0", 12});
  ASSERT_NE(note, std::string::npos);
  bytes[note + 12] = static_cast<char>(bytes[note + 12] ^ 1);
  fs::remove(path);
  write_bytes(path, bytes);
  auto given = options();
  given.run.name = "other";
  auto second = data_parallel_trainer{loop, given}.fit();
  dlclose(library);
  ASSERT_TRUE(second.error);
  EXPECT_FALSE(second.error->ranks.empty()); // the first ends the others
  auto& text = second.error->message;
  EXPECT_NE(text.find("build id"), std::string::npos) << text;
  EXPECT_NE(text.find(path.string()), std::string::npos) << text;
}

/// Reports from a thread that is not the loop's.
void report_from_a_thread(train_context& context) {
  std::string what;
  std::thread{[&] {
    try {
      context.report({{"x", 1}});
    } catch (const train_error& problem) {
      what = problem.what();
    }
  }}.join();
  context.report({{"what", what}});
}

TEST_F(strangers_test, a_thread_that_is_not_the_loops_can_not_report) {
  auto outcome = data_parallel_trainer{report_from_a_thread, options()}.fit();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.metrics.at("what"),
            metric_value{"rank 0: report() was called by a thread that is not "
                         "the train loop's"});
}

class late_call_test : public strangers_test,
                       public ::testing::WithParamInterface<int> {};

TEST_P(late_call_test, a_report_after_the_loop_has_ended_is_refused) {
  std::atomic<train_context*> kept{nullptr};
  auto loop = [&](train_context& context) {
    if (context.rank() == 0)
      kept = &context;
    context.report({{"x", 1}});
  };

  /// Reports once more when all loops are over.
  struct late_reporter : user_callback {
    explicit late_reporter(std::atomic<train_context*>& x) : kept(x) {}

    void after_run(const run_context&, const result&) override {
      try {
        kept.load()->report({{"x", 2}});
      } catch (const train_error& problem) {
        what = problem.what();
      }
    }

    std::atomic<train_context*>& kept;
    std::string what;
  };
  auto late = std::make_shared<late_reporter>(kept);
  train_options given{
    .scaling = {.num_workers = GetParam(), .where = placement::in_process},
    .run = config()};
  given.run.callbacks = {late};
  auto outcome = data_parallel_trainer{in_process_loop{loop}, given}.fit();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.metrics.at("x"), metric_value{1});
  EXPECT_EQ(late->what,
            "rank 0: report() was called after the train loop had ended");
}

INSTANTIATE_TEST_SUITE_P(workers, late_call_test, ::testing::Values(0, 2));

} // namespace troupe::test
