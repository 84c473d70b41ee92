#include "troupe/trainers/loop_address.hpp"

#include <gmock/gmock.h>

#include "tests/support/memory_link.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe::internal::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> calls;

void loop(train_context&, const std::string& config) {
  calls.push_back("loop with " + config);
}

void before_loop(train_context&) {
  calls.push_back("before_loop");
}

void on_report(train_context&, const metrics&,
               const std::optional<checkpoint>&) {
  calls.push_back("on_report");
}

train_loop loop_with_hooks() {
  auto result = train_loop::make(loop, no_backend{}, std::string{"a config"});
  result.hooks.before_loop = before_loop;
  result.hooks.on_report = on_report;
  return result;
}

} // namespace

TEST(loop_address_test, another_process_finds_the_loop_its_config_and_hooks) {
  auto found = resolve_loop(locate_loop(loop_with_hooks()).value()).value();
  calls.clear();
  train_context context{{}, make_memory_link(), std::nullopt};
  found.hooks.before_loop(context);
  found(context, loop_stage::prepare);
  found(context, loop_stage::run);
  found.hooks.on_report(context, {}, std::nullopt);
  EXPECT_THAT(calls,
              ElementsAre("before_loop", "loop with a config", "on_report"));
}

TEST(loop_address_test, a_hook_that_is_not_set_stays_so) {
  auto spec = locate_loop(loop_with_hooks()).value();
  EXPECT_EQ(spec.hooks.after_loop, std::nullopt);
  EXPECT_FALSE(resolve_loop(spec).value().hooks.after_loop);
}

TEST(loop_address_test, names_the_hook_that_another_build_does_not_have) {
  auto spec = locate_loop(loop_with_hooks()).value();
  spec.hooks.on_report->build_id = "0123abcd";
  auto found = resolve_loop(spec);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ec::invalid_config);
  EXPECT_THAT(found.error().message, HasSubstr("the hook on_report"));
}

TEST(loop_address_test, names_the_hook_that_is_not_code) {
  static int variable = 0;
  auto loop = loop_with_hooks();
  loop.hooks.before_loop =
    decltype(rank_hooks::before_loop)::from_address(&variable);
  auto spec = locate_loop(loop);
  ASSERT_FALSE(spec);
  EXPECT_EQ(spec.error().code, ec::invalid_config);
  EXPECT_THAT(spec.error().message, HasSubstr("the hook before_loop"));
}

} // namespace troupe::internal::test
