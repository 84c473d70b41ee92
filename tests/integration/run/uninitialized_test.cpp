// A program that forgot `troupe::init`.

#include <gtest/gtest.h>

#include <troupe/train.hpp>

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

} // namespace troupe::internal::test
