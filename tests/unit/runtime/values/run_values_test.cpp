// Values in messages arrive as they were sent.

#include <gtest/gtest.h>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/runtime/report/report.hpp"
#include "troupe/runtime/values/run_context.hpp"
#include "troupe/runtime/values/run_status.hpp"

namespace troupe::internal {
namespace {

template <class T>
T sent(T x) {
  caf::byte_buffer bytes;
  auto sink = serializer_to(bytes);
  EXPECT_TRUE(sink.apply(x));
  auto source = deserializer_of(bytes);
  T result;
  EXPECT_TRUE(source.apply(result));
  std::uint8_t more = 0;
  EXPECT_FALSE(source.apply(more));
  return result;
}

TEST(run_values_test, a_run_status_survives_the_wire) {
  run_status x{.state = run_state::restarting,
               .attempt = 3,
               .world_size = 4,
               .reports = 12,
               .last_report = 11,
               .reports_per_second = 2.5,
               .last_metrics = {{"loss", 0.5}, {"epoch", 2}, {"note", "ok"}},
               .elapsed_s = 61,
               .callback_queue = 2,
               .callback_s = 0.25};
  EXPECT_EQ(sent(x), x);
  EXPECT_EQ(sent(run_status{}), run_status{});
}

TEST(run_values_test, a_run_context_survives_the_wire) {
  run_context x{.name = "fashion",
                .path = "/runs/fashion",
                .id = "a1b2",
                .attempt = 1,
                .world_size = 2,
                .report_index = 7,
                .config = "{}",
                .start_time = run_context::clock::time_point{
                  std::chrono::microseconds{1'700'000'000'123'456}}};
  EXPECT_EQ(sent(x), x);
}

TEST(run_values_test, a_report_batch_keeps_the_part_of_each_rank) {
  report_batch x{
    .index = 4,
    .values = {{{"loss", 1.0}}, {}},
    .parts = {std::nullopt, checkpoint_part{"best", {{"model.pt", 3, 99}}}}};
  EXPECT_EQ(sent(x), x);
  EXPECT_EQ(*x.checkpoint_name(), "best");
  EXPECT_EQ(report_batch{}.checkpoint_name(), nullptr);
}

TEST(run_values_test, states_are_spelled_as_in_the_code) {
  EXPECT_EQ(to_string(run_state::shutting_down), "shutting_down");
  EXPECT_EQ(to_string(run_state::aborted), "aborted");
  EXPECT_EQ(to_string(run_state::preempted), "preempted");
  EXPECT_FALSE(is_terminal(run_state::shutting_down));
  EXPECT_TRUE(is_terminal(run_state::finished));
  EXPECT_TRUE(is_terminal(run_state::preempted));
}

} // namespace
} // namespace troupe::internal
