#include "troupe/runtime/run/stop_judge.hpp"

#include <limits>

#include <gmock/gmock.h>

namespace troupe::internal {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::Eq;
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
  auto other = judge;
  EXPECT_FALSE(judge.judge(batch(0, {{"loss", 0.2}, {"accuracy", 0.5}},
                                 {{"loss", 0.0}, {"accuracy", 1.0}}),
                           {}));
  EXPECT_FALSE(judge.judge(batch(1, {{"loss", nan}, {"accuracy", nan}}), {}));
  EXPECT_FALSE(judge.judge(batch(2, {{"loss", "0.05"}}), {}));
  EXPECT_EQ(judge.reason(), "");
  EXPECT_THAT(judge.judge(batch(3, {{"accuracy", 0.9}}), {}),
              Optional(HasSubstr("report 3: accuracy is 0.9, at least 0.9")));
  EXPECT_THAT(judge.complaints(), IsEmpty());
  EXPECT_THAT(other.judge(batch(4, {{"loss", 0.1}}), {}),
              Optional(HasSubstr("loss is 0.1, at most 0.1")));
}

TEST(stop_judge_test, counts_reports_of_all_attempts) {
  stop_judge judge{{.reports = 3}};
  EXPECT_FALSE(judge.begin(2));
  EXPECT_FALSE(judge.is_done());
  EXPECT_FALSE(judge.judge(batch(1), {}));
  EXPECT_TRUE(judge.judge(batch(2), {}));
}

TEST(stop_judge_test, a_run_that_begins_with_enough_reports_is_done) {
  stop_judge judge{{.reports = 3}};
  EXPECT_THAT(judge.begin(3), Optional(HasSubstr("it has 3 reports")));
  EXPECT_TRUE(judge.is_done());
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

TEST(stop_judge_test, ends_a_run_that_is_asked_to_finish) {
  stop_judge judge;
  auto other = judge;
  EXPECT_THAT(judge.finish("seen enough"), Optional(Eq("seen enough")));
  EXPECT_EQ(judge.reason(), "seen enough");
  EXPECT_THAT(other.finish(""), Optional(Eq("the run was asked to finish")));
}

TEST(stop_judge_test, gives_the_first_reason_and_gives_it_once) {
  stop_judge judge{{.reports = 2}};
  EXPECT_TRUE(judge.finish("seen enough"));
  EXPECT_FALSE(judge.finish("again"));
  EXPECT_FALSE(judge.judge(batch(1), {}));
  EXPECT_FALSE(judge.begin(2));
  EXPECT_EQ(judge.reason(), "seen enough");
}

TEST(stop_judge_test, asks_another_judge_about_each_report) {
  std::vector<std::uint64_t> seen;
  auto other = [&](const report_batch& x) {
    seen.push_back(x.index);
    return x.index > 0 ? std::optional<std::string>{"it is one of the worst"}
                       : std::nullopt;
  };
  stop_judge judge{{.reports = 3}, other};
  EXPECT_FALSE(judge.judge(batch(0), {}));
  EXPECT_THAT(judge.judge(batch(1), {}),
              Optional(Eq("it is one of the worst")));
  EXPECT_FALSE(judge.judge(batch(2), {}));
  EXPECT_THAT(seen, ElementsAre(0u, 1u, 2u));
}

TEST(stop_judge_test, its_own_reason_comes_before_that_of_another_judge) {
  auto other = [](const report_batch&) { return std::string{"no"}; };
  stop_judge judge{{.reports = 1}, other};
  EXPECT_THAT(judge.judge(batch(0), {}), Optional(HasSubstr("1 report;")));
}

TEST(stop_judge_test, keeps_what_an_earlier_driver_has_decided) {
  stop_judge judge{{.reports = 2}, {}, {"seen enough", false}};
  EXPECT_FALSE(judge.begin(2));
  EXPECT_EQ(judge.reason(), "seen enough");
  EXPECT_TRUE(judge.is_done());
}

TEST(stop_judge_test, ranks_that_were_interrupted_run_once_more) {
  stop_judge judge{{.reports = 2}, {}, {"seen enough", true}};
  EXPECT_FALSE(judge.begin(2));
  EXPECT_FALSE(judge.is_done());
  EXPECT_FALSE(judge.judge(batch(2), {}));
  EXPECT_EQ(judge.reason(), "seen enough");
}

TEST(stop_judge_test, an_interruption_before_there_was_enough_means_nothing) {
  stop_judge judge{{.reports = 2}, {}, {"", true}};
  EXPECT_TRUE(judge.begin(2));
  EXPECT_TRUE(judge.is_done());
}

TEST(stop_judge_test, a_reason_shows_no_secret) {
  stop_judge judge;
  EXPECT_THAT(judge.finish("see https://me:hunter2@nas"),
              Optional(Eq("see https://***@nas")));
  EXPECT_EQ(judge.reason(), "see https://***@nas");
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
