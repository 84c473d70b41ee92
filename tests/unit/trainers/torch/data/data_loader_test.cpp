// Which samples a loader gives to each rank, in which order and batches, on
// which threads and devices, and how it resumes.

#include "troupe/trainers/torch/data/data_loader.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/data/datasets/base.h>
#include <unistd.h>

#include "tests/unit/trainers/torch/data/loader_fixture.hpp"
#include "troupe/trainers/torch/data/dataset.hpp"
#include "troupe/trainers/torch/groups/data_plane.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;

namespace {

/// Sample i is (a tensor [2] of i, the number i).
struct counting_dataset {
  std::int64_t n = 10;

  std::int64_t size() const { return n; }

  std::pair<at::Tensor, std::int64_t> get(std::size_t index) const {
    auto i = static_cast<std::int64_t>(index);
    if (i == 7 && n == 13)
      throw std::runtime_error{"unlucky"};
    return {at::full({2}, i, at::kFloat), i};
  }
};

/// The same as whole batches.
struct batch_counting_dataset {
  std::int64_t size() const { return 10; }

  at::Tensor get_batch(std::span<const std::int64_t> indices) const {
    if (indices.front() == 8)
      throw std::out_of_range{"eight"};
    return at::tensor(
      std::vector<std::int64_t>(indices.begin(), indices.end()));
  }
};

/// A dataset as LibTorch wants it: nothing is const.
struct torch_dataset : torch::data::datasets::Dataset<torch_dataset> {
  torch::data::Example<> get(std::size_t index) override {
    ++reads;
    return {at::full({1}, static_cast<double>(index)), at::scalar_tensor(1)};
  }
  std::optional<std::size_t> size() const override { return 4; }
  int reads = 0;
};

template <class Loader>
std::vector<std::int64_t> labels_of(Loader& loader) {
  std::vector<std::int64_t> result;
  for (auto& [images, labels] : loader) {
    EXPECT_EQ(images.sizes(), (std::vector<std::int64_t>{labels.size(0), 2}));
    EXPECT_TRUE(images.select(1, 1).equal(labels.to(at::kFloat)));
    auto part = to_vector(labels);
    result.insert(result.end(), part.begin(), part.end());
  }
  return result;
}

} // namespace

TEST(data_loader_test, stacks_samples_into_batches) {
  auto context = make_context();
  auto loader =
    prepare_data_loader(context, counting_dataset{}, {.batch_size = 4});
  EXPECT_EQ(loader.size(), 3);
  EXPECT_EQ(labels_of(loader),
            (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(data_loader_test, counts_no_samples_that_are_left_out) {
  auto context = make_context();
  auto loader = prepare_data_loader(context, counting_dataset{7},
                                    {.batch_size = 2, .tail = tail::drop_last});
  int batches = 0;
  for ([[maybe_unused]] auto& batch : loader) {
    EXPECT_EQ(loader.samples_in_batch(), 2);
    ++batches;
  }
  EXPECT_EQ(batches, 3);
}

TEST(data_loader_test, counts_no_samples_once_its_loop_is_left) {
  auto context = make_context();
  auto loader =
    prepare_data_loader(context, counting_dataset{13}, {.batch_size = 2});
  EXPECT_EQ(loader.samples_in_batch(), -1);
  for ([[maybe_unused]] auto& batch : loader) {
    EXPECT_EQ(loader.samples_in_batch(), 2);
    break;
  }
  EXPECT_EQ(loader.samples_in_batch(), -1);
  loader.set_epoch(1);
  std::optional place{loader.begin()};
  for (int i = 0; i < 2; ++i)
    ++*place;
  EXPECT_EQ(loader.samples_in_batch(), 2);
  EXPECT_THROW(++*place, train_error); // one of its samples fails
  EXPECT_EQ(loader.samples_in_batch(), -1);
  ++*place;
  EXPECT_EQ(loader.samples_in_batch(), 2);
  place.reset();
  EXPECT_EQ(loader.samples_in_batch(), -1);
}

TEST(data_loader_test, counts_the_samples_of_a_pass_that_replaces_another) {
  auto context = make_context();
  auto loader =
    prepare_data_loader(context, counting_dataset{11}, {.batch_size = 2});
  std::optional place{loader.begin()};
  while (*place != loader.end())
    ++*place;
  EXPECT_EQ(loader.samples_in_batch(), -1);
  loader.set_epoch(1);
  *place = loader.begin();
  EXPECT_EQ(loader.samples_in_batch(), 2);
  loader.set_epoch(2);
  *place = loader.begin(); // in the middle
  EXPECT_EQ(loader.samples_in_batch(), 2);
  { auto other = loader.begin(); }
  ++*place;
  EXPECT_EQ(loader.samples_in_batch(), 2) << "it is read again";
  place.reset();
  EXPECT_EQ(loader.samples_in_batch(), -1);
}

TEST(data_loader_test, gives_the_same_with_and_without_threads) {
  auto context = make_context();
  data_loader_options options{.batch_size = 3, .shuffle = true, .seed = 4};
  auto plain = prepare_data_loader(context, counting_dataset{500}, options);
  options.workers = 3;
  auto threaded = prepare_data_loader(context, counting_dataset{500}, options);
  for (std::uint64_t epoch : {0, 1, 5}) {
    plain.set_epoch(epoch);
    threaded.set_epoch(epoch);
    EXPECT_EQ(labels_of(plain), labels_of(threaded));
    EXPECT_EQ(plain.state(), threaded.state());
  }
}

TEST(data_loader_test, divides_a_dataset_among_the_ranks) {
  std::multiset<std::int64_t> seen;
  for (int rank = 0; rank < 3; ++rank) {
    auto context = make_context(rank, 3);
    auto loader = prepare_data_loader(
      context, counting_dataset{20},
      {.batch_size = 2, .shuffle = true, .tail = tail::no_padding});
    for (auto x : labels_of(loader))
      seen.insert(x);
  }
  EXPECT_EQ(seen.size(), 20u);
  EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), 20u);
}

TEST(data_loader_test, resumes_after_the_batch_that_the_loop_saw_last) {
  for (int workers : {0, 2}) {
    auto context = make_context();
    const data_loader_options options{
      .batch_size = 2, .shuffle = true, .seed = 1, .workers = workers};
    auto loader = prepare_data_loader(context, counting_dataset{9}, options);
    loader.set_epoch(3);
    auto whole = labels_of(loader);
    for (std::int64_t stop = 1; stop <= loader.size(); ++stop) {
      std::vector<std::int64_t> labels;
      std::int64_t batches = 0;
      sampler_state saved;
      loader.set_epoch(3);
      for (auto& [images, part] : loader) {
        auto values = to_vector(part);
        labels.insert(labels.end(), values.begin(), values.end());
        if (++batches == stop) {
          saved = loader.state();
          break;
        }
      }
      auto resumed = prepare_data_loader(context, counting_dataset{9}, options);
      resumed.load_state(saved);
      resumed.set_epoch(3);
      auto rest = labels_of(resumed);
      labels.insert(labels.end(), rest.begin(), rest.end());
      EXPECT_EQ(labels, whole);
    }
  }
}

TEST(data_loader_test, shows_how_far_its_loop_is) {
  auto context = make_context();
  auto loader =
    prepare_data_loader(context, counting_dataset{10}, {.batch_size = 4});
  auto activity = std::make_shared<rank_activity>();
  loader_activity{activity}.show(loader);
  loader.set_epoch(3);
  std::uint64_t taken = 0;
  for ([[maybe_unused]] auto& batch : loader) {
    EXPECT_EQ(activity->pass.epoch, 3u);
    EXPECT_EQ(activity->pass.taken, ++taken);
    EXPECT_EQ(activity->pass.batches, 3u);
    EXPECT_NE(activity->pass.begun, 0);
  }
  EXPECT_EQ(taken, 3u);
  EXPECT_EQ(activity->pass.batches, 0u);
}

TEST(data_loader_test, shows_no_place_in_a_pass_without_gradients) {
  auto context = make_context();
  auto options = data_loader_options{.batch_size = 4};
  auto loader = prepare_data_loader(context, counting_dataset{10}, options);
  auto validation = prepare_data_loader(context, counting_dataset{8}, options);
  auto activity = std::make_shared<rank_activity>();
  loader_activity{activity}.show(loader);
  loader_activity{activity}.show(validation);
  auto train = loader.begin();
  {
    torch::NoGradGuard no_grad;
    for ([[maybe_unused]] auto& batch : validation) {
      EXPECT_EQ(activity->pass.taken, 1u);
      EXPECT_EQ(activity->pass.batches, 3u);
    }
  }
  EXPECT_EQ(activity->pass.batches, 3u);
  ++train;
  EXPECT_EQ(activity->pass.taken, 2u);
}

TEST(data_loader_test, shows_nothing_in_a_process_that_its_loop_forked) {
  auto context = make_context();
  auto loader =
    prepare_data_loader(context, counting_dataset{10}, {.batch_size = 4});
  auto activity = std::make_shared<rank_activity>();
  loader_activity{activity}.show(loader);
  std::fflush(nullptr);
  auto child = ::fork();
  if (child == 0) {
    for ([[maybe_unused]] auto& batch : loader)
      if (activity->pass.taken != 0)
        ::_exit(1);
    ::_exit(7);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 7 << 8);
}

TEST(data_loader_test, names_the_sample_that_failed) {
  auto context = make_context();
  for (int workers : {0, 2}) {
    auto loader = prepare_data_loader(context, counting_dataset{13},
                                      {.batch_size = 2, .workers = workers});
    try {
      labels_of(loader);
      FAIL() << "nothing was thrown";
    } catch (const train_error& x) {
      EXPECT_EQ(x.reason().message, "the dataset failed at sample 7: unlucky");
      EXPECT_THROW(std::rethrow_if_nested(x), std::runtime_error);
    }
  }
}

TEST(data_loader_test, names_the_samples_of_a_batch_that_failed) {
  auto context = make_context();
  auto loader =
    prepare_data_loader(context, batch_counting_dataset{}, {.batch_size = 2});
  try {
    for (auto& batch : loader)
      EXPECT_EQ(batch.numel(), 2);
    FAIL() << "nothing was thrown";
  } catch (const train_error& x) {
    EXPECT_EQ(x.reason().message,
              "the dataset failed at a batch of samples 8 9: eight");
  }
}

TEST(data_loader_test, reads_whole_batches_where_the_dataset_can) {
  auto context = make_context();
  auto loader = prepare_data_loader(
    context, first_samples{batch_counting_dataset{}, 5}, {.batch_size = 3});
  std::vector<std::vector<std::int64_t>> batches;
  for (auto& batch : loader)
    batches.push_back(to_vector(batch));
  EXPECT_EQ(batches,
            (std::vector<std::vector<std::int64_t>>{{0, 1, 2}, {3, 4}}));
}

TEST(data_loader_test,
     gives_each_thread_a_copy_of_a_dataset_that_is_not_const) {
  static_assert(!shared_by_threads<torch_dataset>);
  static_assert(shared_by_threads<counting_dataset>);
  auto context = make_context();
  auto loader = prepare_data_loader(context, torch_dataset{},
                                    {.batch_size = 2, .workers = 2});
  double sum = 0;
  for (auto& [data, target] : loader) {
    EXPECT_EQ(target.sizes(), (std::vector<std::int64_t>{2}));
    sum += data.sum().item().toDouble();
  }
  EXPECT_EQ(sum, 6);
  EXPECT_EQ(loader.dataset().reads, 0);
}

TEST(data_loader_test, lets_workers_start_no_threads_of_their_own) {
  struct probe {
    int size() const { return 4; }
    bool get(std::size_t) const { return at::get_num_threads() == 1; }
  };
  auto before = at::get_num_threads();
  auto context = make_context();
  auto loader =
    prepare_data_loader(context, probe{}, {.batch_size = 1, .workers = 2});
  int samples = 0;
  for (auto& single : loader) {
    EXPECT_TRUE(single.item().toBool());
    ++samples;
  }
  EXPECT_EQ(samples, 4);
  EXPECT_EQ(at::get_num_threads(), before);
}

TEST(data_loader_test, uses_the_device_of_the_data_plane) {
  auto context = make_context();
  rank_access{context}.data_plane() = std::make_shared<torch_data_plane>(
    torch_data_plane{nullptr, at::Device{at::kMeta}});
  auto there = prepare_data_loader(context, counting_dataset{});
  auto here =
    prepare_data_loader(context, counting_dataset{}, {.move_to_device = false});
  EXPECT_TRUE((*there.begin()).first.is_meta());
  EXPECT_TRUE((*here.begin()).first.is_cpu());
}

TEST(data_loader_test, counts_a_batch_that_could_not_be_read) {
  auto context = make_context();
  for (int workers : {0, 2}) {
    auto loader = prepare_data_loader(context, counting_dataset{13},
                                      {.batch_size = 2, .workers = workers});
    auto position = loader.begin();
    ++position;
    ++position;
    EXPECT_EQ(loader.state().cursor, 6);
    EXPECT_THROW(++position, train_error); // sample 7
    EXPECT_EQ(loader.state().cursor, 6);
    ++position;
    EXPECT_EQ(to_vector((*position).second), (std::vector<std::int64_t>{8, 9}));
    EXPECT_EQ(loader.state().cursor, 10);
  }
}

TEST(data_loader_test, refuses_options_out_of_range) {
  auto context = make_context();
  auto with = [&](data_loader_options x) {
    return prepare_data_loader(context, counting_dataset{}, x);
  };
  EXPECT_THROW(with({.batch_size = 0}), train_error);
  EXPECT_THROW(with({.workers = -1}), train_error);
  EXPECT_THROW(with({.prefetch = 0}), train_error);
}

TEST(data_loader_test, refuses_a_dataset_without_samples) {
  auto context = make_context();
  try {
    prepare_data_loader(context, counting_dataset{0});
    FAIL() << "nothing was thrown";
  } catch (const train_error& x) {
    EXPECT_EQ(x.reason().message,
              "prepare_data_loader: the dataset has no samples: size() of "
              "(anonymous namespace)::counting_dataset is 0");
  }
}

/// Batches of samples with equal parity, the epoch's parity first.
std::vector<std::vector<std::int64_t>> parity_batches(std::uint64_t,
                                                      std::uint64_t epoch) {
  std::vector<std::vector<std::int64_t>> result{
    {0, 2, 4}, {6, 8}, {1, 3}, {5, 7, 9}, {5}};
  if (epoch % 2 == 1)
    std::reverse(result.begin(), result.end());
  return result;
}

TEST(data_loader_test, gives_each_rank_whole_batches_that_are_given) {
  using rows = std::vector<std::vector<std::int64_t>>;
  auto seen = [](int rank, int ranks, tail how, std::uint64_t epoch) {
    auto context = make_context(rank, ranks);
    auto loader = prepare_data_loader(context, batch_counting_dataset{},
                                      {.batches = parity_batches, .tail = how});
    loader.set_epoch(epoch);
    rows result;
    for (auto& batch : loader) {
      EXPECT_EQ(loader.samples_in_batch(), -1);
      result.push_back(to_vector(batch));
    }
    return result;
  };
  EXPECT_EQ(seen(0, 1, tail::pad, 0), parity_batches(0, 0));
  EXPECT_EQ(seen(0, 1, tail::pad, 1), parity_batches(0, 1));
  EXPECT_EQ(seen(0, 2, tail::pad, 0), (rows{{0, 2, 4}, {1, 3}, {5}}));
  EXPECT_EQ(seen(1, 2, tail::pad, 0), (rows{{6, 8}, {5, 7, 9}, {0, 2, 4}}));
  EXPECT_EQ(seen(1, 2, tail::no_padding, 0), (rows{{6, 8}, {5, 7, 9}}));
  EXPECT_EQ(seen(0, 2, tail::drop_last, 0), (rows{{0, 2, 4}, {1, 3}}));
}

TEST(data_loader_test, resumes_given_batches_with_another_number_of_ranks) {
  auto two = make_context(0, 2);
  const data_loader_options options{.batches = parity_batches};
  auto before = prepare_data_loader(two, batch_counting_dataset{}, options);
  auto position = before.begin(); // Two of the five are done.
  std::vector<std::vector<std::int64_t>> rest;
  for (int rank = 0; rank < 3; ++rank) {
    auto context = make_context(rank, 3);
    auto loader =
      prepare_data_loader(context, batch_counting_dataset{}, options);
    loader.load_state(before.state());
    for (auto& batch : loader)
      rest.push_back(to_vector(batch));
  }
  EXPECT_EQ(rest,
            (std::vector<std::vector<std::int64_t>>{{1, 3}, {5, 7, 9}, {5}}));
}
