// A program that forgot `troupe::init`.

#include <unistd.h>

#include <gtest/gtest.h>

#include <troupe/train.hpp>

#include "tests/support/child.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe::internal::test {

TEST(uninitialized_test, ranks_in_processes_need_init) {
  temporary_folder storage;
  train_options options{.scaling = {.num_workers = 2}};
  options.run.storage_path = storage.path();
  options.run.quiet = true;
  auto outcome = data_parallel_trainer{[](train_context&) {}, options}.fit();
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ec::not_initialized);
  EXPECT_NE(outcome.error->message.find("troupe::init"), std::string::npos)
    << outcome.error->message;
  EXPECT_TRUE(fs::is_empty(storage.path()));
}

TEST(uninitialized_test, ranks_in_this_process_do_not) {
  temporary_folder storage;
  for (int workers : {0, 2}) {
    train_options options{
      .scaling = {.num_workers = workers, .where = placement::in_process}};
    options.run.storage_path = storage.path();
    options.run.name = std::to_string(workers);
    options.run.quiet = true;
    auto report = [](train_context& context) { context.report({{"x", 1}}); };
    auto outcome = data_parallel_trainer{report, options}.fit();
    EXPECT_FALSE(outcome.error) << outcome.error->message;
  }
}

TEST(uninitialized_test, no_file_of_a_run_is_a_standard_descriptor) {
  TROUPE_SKIP_FORKS_UNDER_TSAN();
  temporary_folder storage;
  train_options options{.scaling = {.num_workers = 0}};
  options.run.storage_path = storage.path();
  options.run.quiet = true;
  auto status = run_in_child([&] {
    for (int fd : {0, 1, 2})
      ::close(fd);
    auto opened = 0;
    auto loop = [&](train_context& context) {
      for (int fd : {0, 1, 2})
        opened += fs::read_symlink("/proc/self/fd/" + std::to_string(fd))
                  == "/dev/null";
      context.report({{"opened", opened}});
    };
    auto outcome = data_parallel_trainer{in_process_loop{loop}, options}.fit();
    ::_exit(outcome.error || opened != 3 ? 1 : 0);
  });
  EXPECT_EQ(status, 0);
}

} // namespace troupe::internal::test
