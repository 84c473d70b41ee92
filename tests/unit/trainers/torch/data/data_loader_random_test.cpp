// The random numbers that a dataset draws for a sample.

#include "troupe/trainers/torch/data/data_loader.hpp"

#include <map>
#include <span>
#include <utility>
#include <vector>

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "tests/unit/trainers/torch/data/loader_fixture.hpp"
#include "troupe/trainers/torch/data/dataset.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;

namespace {

/// Sample i is random; the model's dropout draws beside it.
struct noisy_dataset {
  std::int64_t size() const { return 48; }
  std::pair<at::Tensor, std::int64_t> get(std::size_t index,
                                          at::Generator random) const {
    return {at::rand({3}, random), static_cast<std::int64_t>(index)};
  }
};

/// The same numbers in whole batches.
struct noisy_batches {
  std::int64_t size() const { return 48; }
  std::pair<at::Tensor, at::Tensor>
  get_batch(std::span<const std::int64_t> indices,
            const sample_generators& random) const {
    std::vector<at::Tensor> rows;
    for (auto index : indices)
      rows.push_back(at::rand({3}, random.of(index)));
    return {at::stack(rows), at::tensor(std::vector<std::int64_t>(
                               indices.begin(), indices.end()))};
  }
};

using rows_by_index = std::map<std::int64_t, std::vector<float>>;

/// The random rows of an epoch by sample, from the rest of a pass on, and what
/// dropout drew meanwhile.
template <class Loader>
std::pair<rows_by_index, double> drawn(Loader& loader) {
  at::manual_seed(3);
  rows_by_index rows;
  double dropped = 0;
  for (auto& [numbers, indices] : loader) {
    for (std::int64_t i = 0; i < indices.size(0); ++i) {
      auto row = numbers[i].contiguous();
      auto* first = row.template data_ptr<float>();
      rows[indices[i].template item<std::int64_t>()] = {first, first + 3};
    }
    dropped = dropped * 0.9
              + at::dropout(at::ones({16}), 0.5, true)
                  .dot(at::arange(16, at::kFloat))
                  .template item<double>();
  }
  return {rows, dropped};
}

} // namespace

TEST(data_loader_test, draws_the_same_for_a_sample_whoever_reads_it) {
  auto context = make_context();
  data_loader_options options{.batch_size = 4, .shuffle = true, .seed = 2};
  auto plain = prepare_data_loader(context, noisy_dataset{}, options);
  plain.set_epoch(1);
  auto [expected, dropped] = drawn(plain);
  ASSERT_EQ(expected.size(), 48u);
  EXPECT_NE(expected.at(0), expected.at(1));
  auto expect_equal = [&](auto&& loader) {
    loader.set_epoch(1);
    auto [rows, dropped_too] = drawn(loader);
    EXPECT_FALSE(rows.empty());
    for (auto& [index, row] : rows)
      EXPECT_EQ(row, expected.at(index)) << index;
    return dropped_too;
  };
  for (int workers : {0, 1, 3}) {
    options.workers = workers;
    EXPECT_EQ(
      expect_equal(prepare_data_loader(context, noisy_dataset{}, options)),
      dropped);
    EXPECT_EQ(
      expect_equal(prepare_data_loader(context, noisy_batches{}, options)),
      dropped);
    expect_equal(
      prepare_data_loader(context, first_samples{noisy_dataset{}, 9}, options));
    for (int rank = 0; rank < 3; ++rank) {
      auto one_of_three = make_context(rank, 3);
      expect_equal(prepare_data_loader(one_of_three, noisy_dataset{}, options));
    }
  }
}

TEST(data_loader_test, draws_other_numbers_in_another_epoch_or_with_a_seed) {
  auto context = make_context();
  auto first_row = [&](std::uint64_t seed, std::uint64_t epoch) {
    auto loader = prepare_data_loader(context, noisy_dataset{}, {.seed = seed});
    loader.set_epoch(epoch);
    return drawn(loader).first.at(0);
  };
  EXPECT_EQ(first_row(1, 2), first_row(1, 2));
  EXPECT_NE(first_row(1, 2), first_row(2, 1));
  EXPECT_NE(first_row(1, 2), first_row(1, 3));
}

TEST(data_loader_test, draws_the_same_after_it_was_resumed) {
  auto context = make_context();
  const data_loader_options options{.batch_size = 4, .workers = 2};
  auto loader = prepare_data_loader(context, noisy_dataset{}, options);
  loader.set_epoch(5);
  auto whole = drawn(loader).first;
  loader.set_epoch(5);
  auto position = loader.begin();
  ++position;
  auto resumed = prepare_data_loader(context, noisy_dataset{}, options);
  resumed.load_state(loader.state());
  auto rest = drawn(resumed).first;
  EXPECT_EQ(rest.size(), 40u);
  for (auto& [index, row] : rest)
    EXPECT_EQ(row, whole.at(index));
}
