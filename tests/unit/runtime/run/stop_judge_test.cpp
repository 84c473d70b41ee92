#include "troupe/runtime/run/stop_judge.hpp"

#include <limits>

#include <gmock/gmock.h>

namespace troupe::internal {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Optional;

constexpr auto nan = std::numeric_limits<double>::quiet_NaN();

report_batch batch(std::uint64_t index, packed_metrics rank_0 = {},
                   packed_metrics rank_1 = {}) {
  report_batch result{.index = index};
  result.values = {std::move(rank_0), std::move(rank_1)};
  return result;
}

TEST(stop_judge_test, ends_a_run_at_the_first_threshold_of_rank_0) {
  stop_judge judge{{.metrics = {{"loss", {}, 0.1}, {"accuracy", 0.9}}}};
  EXPECT_FALSE(judge.judge(batch(0, {{"loss", 0.2}, {"accuracy", 0.5}},
                                 {{"loss", 0.0}, {"accuracy", 1.0}}),
                           {}));
  EXPECT_FALSE(judge.judge(batch(1, {{"loss", nan}, {"accuracy", nan}}), {}));
  EXPECT_FALSE(judge.judge(batch(2, {{"loss", "0.05"}}), {}));
  EXPECT_THAT(judge.judge(batch(3, {{"accuracy", 0.9}}), {}),
              Optional(HasSubstr("report 3: accuracy is 0.9, at least 0.9")));
  EXPECT_THAT(judge.judge(batch(4, {{"loss", 0.1}}), {}),
              Optional(HasSubstr("loss is 0.1, at most 0.1")));
  EXPECT_THAT(judge.complaints(), IsEmpty());
}

TEST(stop_judge_test, counts_reports_of_all_attempts) {
  stop_judge judge{{.reports = 3}};
  EXPECT_FALSE(judge.judge(2));
  EXPECT_TRUE(judge.judge(3));
  EXPECT_FALSE(judge.judge(batch(1), {}));
  EXPECT_TRUE(judge.judge(batch(2), {}));
}

TEST(stop_judge_test, ends_a_run_at_the_first_report_after_its_time) {
  stop_judge judge{{.time = milliseconds{10}}};
  EXPECT_FALSE(judge.judge(batch(0), milliseconds{9}));
  EXPECT_TRUE(judge.judge(batch(1), milliseconds{10}));
}

TEST(stop_judge_test, ends_a_run_that_a_rank_wants_to_end) {
  stop_judge judge;
  auto x = batch(0);
  EXPECT_FALSE(judge.judge(x, {}));
  x.stop_request = "rank 1: it is good enough";
  EXPECT_EQ(judge.judge(x, {}), x.stop_request);
}

TEST(stop_judge_test, names_metrics_that_no_report_had) {
  stop_judge judge{{.metrics = {{"acc", 0.9}, {"loss", {}, 0.1}}}};
  EXPECT_THAT(judge.complaints(), IsEmpty());
  judge.judge(batch(0, {{"accuracy", 0.5}, {"loss", 0.5}}), {});
  EXPECT_THAT(
    judge.complaints(),
    ElementsAre(testing::AllOf(HasSubstr("'acc'"), HasSubstr("accuracy=0.5"))));
}

} // namespace
} // namespace troupe::internal
