#include "troupe/callbacks/report_page/sweep_page.hpp"

#include <gmock/gmock.h>

#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/sweep/search_space.hpp"

namespace troupe::internal::test {

using testing::HasSubstr;
using testing::Not;

namespace {

trial trial_of(std::size_t index, double score) {
  trial x;
  x.index = index;
  x.name = trial_name(index);
  x.params = {{"lr", 0.1}, {"kind", "a"}};
  x.status = run_status_kind::finished;
  x.metrics = {{"loss", score}};
  x.score = score;
  return x;
}

sweep_facts facts_of(std::size_t trials) {
  sweep_facts x;
  x.name = "search";
  x.status = "finished";
  x.content.description.begun = "2026-01-01T00:00:00Z";
  x.content.description.space = space_text(
    {{"lr", log_uniform(0.01, 1)}, {"kind", choice({"a", true, 3})}});
  x.content.history.start.emplace();
  x.content.history.start->metric = "loss";
  for (std::size_t i = 0; i < trials; ++i)
    x.content.history.trials.push_back(
      trial_of(i, 10 - static_cast<double>(i)));
  return x;
}

} // namespace

TEST(sweep_page_test, has_the_space_and_the_trials) {
  auto x = facts_of(2);
  x.pages = {"trial-0001"};
  auto data = sweep_data(x);
  EXPECT_THAT(data, HasSubstr(R"("begin":1767225600000)"));
  EXPECT_THAT(data, HasSubstr(R"({"metric":"loss","order":"min",)"));
  EXPECT_THAT(data, HasSubstr(R"("best":1})"));
  EXPECT_THAT(data, HasSubstr(R"({"name":"lr","kind":"number","low":0.01,)"
                              R"("high":1.0,"log":true})"));
  EXPECT_THAT(
    data,
    HasSubstr(R"({"name":"kind","kind":"choice","values":["a",true,3]})"));
  EXPECT_THAT(data, HasSubstr(R"({"name":"trial-0000","status":"finished",)"
                              R"("values":[0.1,"a"],"score":10,)"));
  EXPECT_THAT(data, HasSubstr(R"("page":"trial-0001/report.html")"));
}

TEST(sweep_page_test, a_trial_that_was_under_way_at_the_end_is_unfinished) {
  auto x = facts_of(1);
  x.content.history.trials[0].status = run_status_kind::running;
  EXPECT_THAT(sweep_data(x), HasSubstr(R"("status":"unfinished")"));
  x.status = "running";
  EXPECT_THAT(sweep_data(x), Not(HasSubstr("unfinished")));
}

TEST(sweep_page_test, has_the_best_of_very_many_trials) {
  auto x = facts_of(2003);
  auto data = sweep_data(x);
  EXPECT_THAT(data, HasSubstr("The sweep has 2003 trials; these are the best "
                              "2000."));
  EXPECT_THAT(data, Not(HasSubstr("trial-0002\"")));
  EXPECT_THAT(data, HasSubstr("trial-0003\""));
  EXPECT_THAT(data, HasSubstr(R"("best":1999})"));
}

TEST(sweep_page_test, is_written_into_the_folder_of_the_sweep) {
  temporary_folder storage;
  sweep_description description;
  description.name = "search";
  description.space = space_text({{"lr", uniform(0, 1)}});
  auto store = sweep_store::open(storage.path(), description).value();
  sweep_start start;
  start.metric = "loss";
  ASSERT_TRUE(store->start(start));
  ASSERT_TRUE(store->begin(trial_of(0, 1)));
  ASSERT_TRUE(store->end(trial_of(0, 1)));
  ASSERT_TRUE(store->finish({run_status_kind::errored, "", "<the> reason"}));
  ASSERT_TRUE(write_sweep_page(store->path()));
  auto page = bytes_of(storage / "search" / "compare.html");
  EXPECT_THAT(page, HasSubstr("<p>errored: 1 trial; best loss 1: trial-0000"));
  EXPECT_THAT(page, HasSubstr("\\u003cthe> reason"));
}

} // namespace troupe::internal::test
