// What a synchronization costs, and what it refuses.

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "metric_ranks.hpp"
#include "troupe/torch.hpp"
#include "warnings.hpp"

namespace troupe::internal::test {

namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

/// 20 metrics, each with sums of its own or shared ones.
metric_collection twenty() {
  metric_collection result;
  for (int i = 0; i < 10; ++i) {
    auto key = std::to_string(i);
    result.add(mean_squared_error{}, "mse" + key);
    result.add(r2_score{}, "r2" + key);
  }
  return result;
}

} // namespace

TEST(synchronization_test, takes_one_collective_for_twenty_metrics) {
  auto failures = run_on_planes(2, [](int rank, torch_data_plane plane) {
    auto scores = twenty();
    scores.synchronize_over(plane);
    scores.update(torch::ones({3 + rank}), torch::arange(3 + rank));
    auto before = collectives_of(plane);
    scores.compute();
    check(collectives_of(plane) == before + 1, "not one collective");
  });
  EXPECT_THAT(failures, Each(IsEmpty()));
}

TEST(synchronization_test, takes_two_if_one_rank_has_much) {
  auto failures = run_on_planes(3, [](int rank, torch_data_plane plane) {
    cat_metric all;
    all.synchronize_over(plane);
    auto n = rank == 1 ? 100'000 : rank;
    all.update(torch::full({n}, rank));
    auto before = collectives_of(plane);
    auto value = all.compute();
    check(collectives_of(plane) == before + 2, "not two collectives");
    check(value.numel() == 100'002 && value[0].item<double>() == 1
            && value[-3].item<double>() == 1 && value[-2].item<double>() == 2,
          "another value");
  });
  EXPECT_THAT(failures, Each(IsEmpty()));
}

TEST(synchronization_test, sends_no_states_if_no_rank_has_updates) {
  auto failures = run_on_planes(2, [](int rank, torch_data_plane plane) {
    cat_metric all;
    all.synchronize_over(plane);
    all.update(torch::full({10'000}, rank));
    auto first = all.compute();
    auto before = collectives_of(plane);
    check(all.compute().is_same(first), "computed again");
    check(collectives_of(plane) == before + 1, "sent again");
  });
  EXPECT_THAT(failures, Each(IsEmpty()));
}

TEST(synchronization_test, has_the_value_of_nothing_without_samples) {
  auto failures = run_on_planes(3, [](int, torch_data_plane plane) {
    kept_warnings warnings;
    mean_metric mean;
    cat_metric all;
    r2_score r2;
    for (metric* x : std::initializer_list<metric*>{&mean, &all, &r2})
      x->synchronize_over(plane);
    check(std::isnan(mean.value()), "a mean");
    check(all.compute().sizes() == at::IntArrayRef{0}, "elements");
    check(warnings.all().size() == 2, "other warnings");
    try {
      r2.compute();
    } catch (const train_error& e) {
      check(std::string{e.what()}.find("has 0") != std::string::npos, e.what());
      return;
    }
    check(false, "a score");
  });
  EXPECT_THAT(failures, Each(IsEmpty()));
}

TEST(synchronization_test, warns_of_no_rank_without_samples) {
  auto failures = run_on_planes(2, [](int rank, torch_data_plane plane) {
    kept_warnings warnings;
    mean_metric mean;
    mean.synchronize_over(plane);
    if (rank == 1)
      mean.update(3);
    check(mean.value() == 3, "another value");
    check(warnings.all().empty(), "a warning");
  });
  EXPECT_THAT(failures, Each(IsEmpty()));
}

TEST(synchronization_test, names_the_ranks_with_other_metrics) {
  auto failures = run_on_planes(3, [](int rank, torch_data_plane plane) {
    mean_squared_error mse{{.num_outputs = rank == 1 ? 2 : 1}};
    mse.synchronize_over(plane);
    mse.update(torch::zeros({2, 2}), torch::ones({2, 2}));
    mse.compute();
  });
  EXPECT_THAT(failures,
              Each(HasSubstr("rank 1: other metrics or options than on rank 0; "
                             "rank")));
  EXPECT_THAT(failures[2], HasSubstr("rank 2 computes mean_squared_error"));
  failures = run_on_planes(3, [](int rank, torch_data_plane plane) {
    metric_collection scores{mean_squared_error{}};
    if (rank == 0)
      scores.add(mean_absolute_error{});
    scores.synchronize_over(plane);
    scores.compute();
  });
  EXPECT_THAT(failures, Each(HasSubstr("ranks 1, 2: other metrics")));
  EXPECT_THAT(failures[0], HasSubstr("rank 0 computes mean_squared_error, "
                                     "mean_absolute_error"));
}

TEST(synchronization_test, leaves_its_states_if_a_value_cannot_be_made) {
  auto failures = run_on_planes(2, [](int rank, torch_data_plane plane) {
    r2_score r2;
    r2.synchronize_over(plane);
    if (rank == 0)
      r2.update(torch::ones({1}), torch::ones({1}));
    try {
      r2.compute();
      check(false, "a score of one sample");
    } catch (const train_error&) {
      check(r2.updates() == (rank == 0 ? 1 : 0), "another state");
    }
    r2.update(torch::full({1}, 2), torch::full({1}, 3 + rank));
    check(r2.state().at("samples").item<int>() == (rank == 0 ? 2 : 1),
          "another state");
    // (1, 1), (2, 3) and (2, 4): squared errors 5, variation 14 / 3.
    check(std::abs(r2.value() - (1 - 15.0 / 14)) < 1e-12, "another score");
  });
  EXPECT_THAT(failures, Each(IsEmpty()));
}

TEST(synchronization_test, means_over_all_windows) {
  auto failures = run_on_planes(2, [](int rank, torch_data_plane plane) {
    running_mean mean{2};
    mean.synchronize_over(plane);
    for (auto x : {100.0, 1.0 + rank, 4.0 * rank})
      mean.update(x);
    check(mean.value() == 7.0 / 4, "another value");
  });
  EXPECT_THAT(failures, Each(IsEmpty()));
}

} // namespace troupe::internal::test
