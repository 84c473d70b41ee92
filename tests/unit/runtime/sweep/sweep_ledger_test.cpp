#include <cmath>
#include <stdexcept>

#include <gmock/gmock.h>

#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/sweep/sweep_ledger.hpp"

namespace troupe::internal::test {

using testing::HasSubstr;

class sweep_ledger_test : public ::testing::Test {
protected:
  /// One start of the sweep.
  struct start {
    std::unique_ptr<sweep_store> store;
    std::vector<trial> trials;
    std::unique_ptr<sweep_ledger> ledger;
  };

  std::unique_ptr<start> begin(sweep_rules rules = {}) {
    if (rules.metric.empty())
      rules.metric = "loss";
    auto x = std::make_unique<start>();
    sweep_description description;
    description.name = "sweep";
    x->store = sweep_store::open(storage_.path(), description).value();
    x->ledger = std::make_unique<sweep_ledger>(x->trials, *x->store,
                                               grid_search(), rules);
    EXPECT_TRUE(x->ledger->restore());
    return x;
  }

  static expected<void> run(sweep_ledger& ledger, run_status_kind status,
                            const std::string& reason = "") {
    TROUPE_TRY(auto x, ledger.next_new({{"width", integers(1, 5)}}));
    if (!x)
      return failure(ec::stopped, "there are no more");
    TROUPE_TRY_VOID(ledger.begin(*x));
    x->status = status;
    x->reason = reason;
    if (status == run_status_kind::finished)
      x->metrics = {{"loss", 1.0}};
    return ledger.end(std::move(*x));
  }

  static constexpr auto errored = run_status_kind::errored;
  static constexpr auto finished = run_status_kind::finished;

  temporary_folder storage_;
};

TEST_F(sweep_ledger_test, gives_up_after_failures_without_a_success) {
  auto x = begin({.max_failed_trials = 2});
  EXPECT_TRUE(run(*x->ledger, run_status_kind::aborted));
  EXPECT_TRUE(run(*x->ledger, errored, "rank 0: no such file"));
  EXPECT_FALSE(x->ledger->is_hopeless());
  EXPECT_FALSE(x->ledger->reason_to_end());
  EXPECT_TRUE(run(*x->ledger, errored, "another cause"));
  EXPECT_TRUE(x->ledger->is_hopeless());
  auto reason = x->ledger->reason_to_end();
  ASSERT_TRUE(reason);
  EXPECT_EQ(reason->code, ec::rank_failed);
  EXPECT_EQ(reason->message,
            "2 trials failed and none has finished, so the sweep ends "
            "(sweep_options::max_failed_trials is 2); the first, trial-0001: "
            "rank 0: no such file");
  // One that was under way meanwhile has finished.
  EXPECT_TRUE(run(*x->ledger, finished));
  EXPECT_FALSE(x->ledger->is_hopeless());
  EXPECT_FALSE(x->ledger->reason_to_end());
}

TEST_F(sweep_ledger_test, counts_the_failures_of_its_own_start) {
  {
    auto first = begin({.max_failed_trials = 1});
    EXPECT_TRUE(run(*first->ledger, errored, "before"));
    EXPECT_TRUE(first->ledger->is_hopeless());
  }
  auto next = begin({.max_failed_trials = 1});
  EXPECT_FALSE(next->ledger->is_hopeless());
  EXPECT_TRUE(run(*next->ledger, errored, "now"));
  ASSERT_TRUE(next->ledger->reason_to_end());
  EXPECT_THAT(next->ledger->reason_to_end()->message,
              HasSubstr("1 trial failed"));
  EXPECT_THAT(next->ledger->reason_to_end()->message,
              HasSubstr("trial-0001: now"));
  EXPECT_EQ(next->ledger->failed(), 2u);
}

TEST_F(sweep_ledger_test, a_success_of_an_earlier_start_counts) {
  EXPECT_TRUE(run(*begin()->ledger, finished));
  auto next = begin({.max_failed_trials = 1});
  EXPECT_TRUE(run(*next->ledger, errored));
  EXPECT_FALSE(next->ledger->is_hopeless());
}

TEST_F(sweep_ledger_test, says_so_if_all_trials_failed) {
  auto x = begin({.trials = 2});
  EXPECT_TRUE(run(*x->ledger, errored, "the disk is full"));
  EXPECT_TRUE(run(*x->ledger, errored));
  EXPECT_FALSE(x->ledger->is_hopeless()) << "without a limit";
  EXPECT_EQ(run(*x->ledger, errored).error().code, ec::stopped);
  ASSERT_TRUE(x->ledger->reason_to_end());
  EXPECT_EQ(x->ledger->reason_to_end()->message,
            "all trials of the sweep failed, 2 of 2; the first, trial-0000: "
            "the disk is full");
}

TEST_F(sweep_ledger_test, resumes_what_has_begun_before_it_asks_for_more) {
  {
    auto first = begin();
    for (auto i = 0; i < 3; ++i) {
      auto x = first->ledger->next_new({{"width", integers(1, 5)}}).value();
      ASSERT_TRUE(x);
      ASSERT_TRUE(first->ledger->begin(*x));
    }
    auto second = first->trials.at(1);
    second.status = run_status_kind::finished;
    second.metrics = {{"loss", std::nan("")}};
    ASSERT_TRUE(first->ledger->end(std::move(second)));
  }
  auto next = begin();
  EXPECT_EQ(next->ledger->ended(), 1u);
  EXPECT_EQ(next->ledger->left_to_resume(), 2u);
  EXPECT_FALSE(next->trials.at(1).score) << "NaN is not a score";
  EXPECT_EQ(next->ledger->next_begun()->name, "trial-0000");
  EXPECT_EQ(next->ledger->next_begun()->name, "trial-0002");
  EXPECT_FALSE(next->ledger->next_begun());
  EXPECT_EQ(next->ledger->next_new({{"width", integers(1, 5)}}).value()->index,
            3u);
}

TEST_F(sweep_ledger_test, failed_trials_run_again_if_they_are_to) {
  {
    auto first = begin();
    EXPECT_TRUE(run(*first->ledger, finished));
    EXPECT_TRUE(run(*first->ledger, errored, "the disk is full"));
  }
  EXPECT_FALSE(begin()->ledger->next_begun());
  {
    auto next = begin({.retry_failed = true});
    EXPECT_EQ(next->ledger->ended(), 1u);
    auto again = next->ledger->next_begun();
    ASSERT_TRUE(again);
    EXPECT_EQ(again->index, 1u);
    EXPECT_FALSE(next->ledger->next_begun());
  }
  // That start was killed; now it counts as one that had begun.
  auto last = begin();
  auto again = last->ledger->next_begun();
  ASSERT_TRUE(again);
  again->status = finished;
  again->metrics = {{"loss", 0.5}};
  EXPECT_TRUE(last->ledger->end(*again));
  last.reset();
  auto x = begin({.retry_failed = true});
  EXPECT_FALSE(x->ledger->next_begun());
  EXPECT_EQ(x->ledger->ended(), 2u);
  EXPECT_EQ(x->trials.at(1).score, 0.5);
  EXPECT_THAT(x->store->history().ends, testing::ElementsAre(0, 1));
}

namespace {

/// Chooses what it is given; throws where it is to.
class stubborn_searcher : public searcher {
public:
  explicit stubborn_searcher(metrics params) : params_(std::move(params)) {}

  std::string name() const override { return "stubborn"; }

  std::optional<metrics> ask(const search_space&, std::size_t) override {
    if (throws_when_asked)
      throw std::runtime_error{"no idea"};
    return params_;
  }

  void tell(const trial&) override {
    if (throws_when_told)
      throw std::runtime_error{"never mind"};
  }

  bool throws_when_asked = false;
  bool throws_when_told = false;

private:
  metrics params_;
};

} // namespace

TEST_F(sweep_ledger_test,
       names_a_searcher_that_throws_or_chooses_other_params) {
  auto chooser = std::make_shared<stubborn_searcher>(metrics{{"width", 1}});
  auto store = sweep_store::open(storage_.path(), {.name = "sweep"}).value();
  std::vector<trial> trials;
  sweep_ledger ledger{trials, *store, chooser, {.metric = "loss"}};
  auto refusal = [&](const search_space& space) {
    auto x = ledger.next_new(space);
    return x ? std::string{"none"} : x.error().message;
  };
  search_space width{{"width", integers(1, 5)}};
  EXPECT_EQ(refusal({{"width", integers(1, 5)}, {"lr", uniform(0, 1)}}),
            "the searcher (stubborn) chose no value of the param 'lr' for "
            "trial-0000");
  EXPECT_EQ(refusal({}), "the searcher (stubborn) chose a value of a param "
                         "that is not in the space, 'width' for trial-0000");
  EXPECT_EQ(refusal(width), "none");
  chooser->throws_when_asked = true;
  EXPECT_EQ(refusal(width), "the searcher (stubborn) threw when it was asked "
                            "for trial-0000: no idea");
  chooser->throws_when_asked = false;
  chooser->throws_when_told = true;
  auto one = ledger.next_new(width).value().value();
  ASSERT_TRUE(ledger.begin(one));
  one.status = finished;
  auto told = ledger.end(one);
  ASSERT_FALSE(told);
  EXPECT_EQ(
    told.error().message,
    "the searcher (stubborn) threw in tell() for trial-0000: never mind");
  store.reset();
  store = sweep_store::open(storage_.path(), {.name = "sweep"}).value();
  EXPECT_EQ(store->history().ends.size(), 1u) << "its end is stored";
}

} // namespace troupe::internal::test
