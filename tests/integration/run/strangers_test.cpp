// Peers that do not belong to the run, code that does not belong to the
// program, and calls that do not belong to the loop.

#include <dlfcn.h>

#include <atomic>
#include <optional>
#include <thread>

#include "tests/integration/run/report_hook.hpp"
#include "tests/integration/run/run_test.hpp"
#include "tests/support/named_sockets.hpp"

namespace troupe::internal::test {

class strangers_test : public run_test {
protected:
  train_options options() {
    return {.scaling = {.num_workers = 2}, .run = config()};
  }
};

TEST_F(strangers_test, a_run_has_no_socket_that_another_user_could_find) {
  auto before = named_sockets();
  std::optional<std::size_t> during;
  auto given = options();
  given.run.callbacks = {on_report(2, [&] { during = named_sockets(); })};
  auto outcome = run({.steps = 20}, given);
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(during, before);
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

TEST_F(strangers_test, a_thread_that_is_not_the_loops_cannot_report) {
  auto outcome = data_parallel_trainer{report_from_a_thread, options()}.fit();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.metrics.at("what"),
            metric_value{"rank 0: report() was called by a thread that is not "
                         "the train loop's"});
}

TEST_F(strangers_test, a_fit_inside_of_a_loop_gives_its_context_back) {
  auto within = [this](std::string name) {
    return train_options{.scaling = {.num_workers = 0},
                         .run = config(std::move(name))};
  };
  auto outer = [&](train_context& context) {
    auto inner = [&](train_context& mine) {
      mine.report({{"mine", &troupe::context() == &mine}});
    };
    auto outcome =
      data_parallel_trainer{in_process_loop{inner}, within("inner")}.fit();
    context.report({{"inner", outcome.metrics.at("mine")},
                    {"mine", &troupe::context() == &context}});
  };
  auto outcome =
    data_parallel_trainer{in_process_loop{outer}, within("outer")}.fit();
  ASSERT_FALSE(outcome.error) << outcome.error->message;
  EXPECT_EQ(outcome.metrics, (metrics{{"inner", true}, {"mine", true}}));
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

} // namespace troupe::internal::test
