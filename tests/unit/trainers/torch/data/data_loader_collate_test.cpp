// How samples become a batch, of whatever type they are.

#include "troupe/trainers/torch/data/data_loader.hpp"

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "tests/unit/trainers/torch/data/loader_fixture.hpp"
#include "troupe/trainers/torch/data/dataset.hpp"
#include "troupe/trainers/torch/groups/data_plane.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;

namespace {

struct named_sample {
  at::Tensor image;
  at::Tensor mask;
  auto members() { return std::tie(image, mask); }
};

struct named_dataset {
  int size() const { return 3; }
  named_sample get(std::size_t index) const {
    return {at::full({1}, static_cast<double>(index)), at::ones({2})};
  }
};

/// Texts of different lengths: sample i is i + 1 times the number i.
struct ragged_numbers {
  std::int64_t size() const { return 4; }
  at::Tensor get(std::size_t index) const {
    auto i = static_cast<std::int64_t>(index);
    return at::full({i + 1}, i, at::kLong);
  }
};

/// All in one row, and how long each is.
std::pair<at::Tensor, at::Tensor> pack_rows(std::vector<at::Tensor> samples) {
  std::vector<std::int64_t> lengths;
  for (auto& x : samples)
    lengths.push_back(x.size(0));
  return {at::cat(samples), at::tensor(lengths)};
}

/// With a collate of its own, which forgets samples.
struct forgetful : ragged_numbers {
  at::Tensor collate(std::vector<at::Tensor> samples) const {
    return samples.front();
  }
};

struct named_batches {
  std::int64_t size() const { return 2; }
  std::map<std::string, std::optional<at::Tensor>>
  get_batch(std::span<const std::int64_t>) const {
    return {{"image", at::ones({2})}, {"mask", std::nullopt}};
  }
};

} // namespace

TEST(data_loader_test, names_samples_that_cannot_be_stacked) {
  struct ragged {
    int size() const { return 2; }
    at::Tensor get(std::size_t i) const {
      return at::ones({static_cast<std::int64_t>(i) + 1});
    }
  };
  auto context = make_context();
  auto loader = prepare_data_loader(context, ragged{}, {.batch_size = 2});
  try {
    loader.begin();
    FAIL() << "nothing was thrown";
  } catch (const train_error& x) {
    EXPECT_TRUE(x.reason().message.starts_with(
      "the dataset failed at a batch of samples 0 1: "))
      << x.reason().message;
  }
}

TEST(data_loader_test, keeps_a_struct_that_lists_its_members) {
  auto context = make_context();
  auto loader =
    prepare_data_loader(context, named_dataset{}, {.batch_size = 3});
  auto position = loader.begin();
  named_sample& batch = *position;
  EXPECT_EQ(batch.image.sizes(), (std::vector<std::int64_t>{3, 1}));
  EXPECT_EQ(batch.mask.sizes(), (std::vector<std::int64_t>{3, 2}));
}

TEST(data_loader_test, collates_numbers_texts_and_nested_fields) {
  using sample = std::tuple<float, bool, std::string,
                            std::pair<at::Tensor, std::array<at::Tensor, 1>>>;
  auto [real, flag, text, nested] = collate(
    std::vector<sample>{{1.5f, true, "a", {at::ones({2}), {at::zeros({})}}},
                        {2.5f, false, "b", {at::ones({2}), {at::zeros({})}}}});
  EXPECT_TRUE(real.equal(at::tensor({1.5f, 2.5f})));
  EXPECT_EQ(real.scalar_type(), at::kFloat);
  EXPECT_EQ(flag.scalar_type(), at::kBool);
  EXPECT_TRUE(flag[0].item().toBool());
  EXPECT_FALSE(flag[1].item().toBool());
  EXPECT_EQ(text, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(nested.first.sizes(), (std::vector<std::int64_t>{2, 2}));
}

TEST(data_loader_test, moves_the_tensors_of_maps_and_optionals) {
  auto context = make_context();
  rank_access{context}.data_plane() = std::make_shared<torch_data_plane>(
    torch_data_plane{nullptr, at::Device{at::kMeta}});
  auto loader =
    prepare_data_loader(context, named_batches{}, {.batch_size = 2});
  auto position = loader.begin();
  EXPECT_TRUE((*position).at("image")->is_meta());
}

TEST(data_loader_test, makes_batches_by_a_function_that_is_given) {
  auto context = make_context();
  for (int workers : {0, 2}) {
    auto loader =
      prepare_data_loader(context, with_collate{ragged_numbers{}, pack_rows},
                          {.batch_size = 2, .workers = workers});
    std::vector<std::vector<std::int64_t>> rows, lengths;
    for (auto& [row, length] : loader) {
      rows.push_back(to_vector(row));
      lengths.push_back(to_vector(length));
    }
    EXPECT_EQ(rows, (std::vector<std::vector<std::int64_t>>{
                      {0, 1, 1}, {2, 2, 2, 3, 3, 3, 3}}));
    EXPECT_EQ(lengths,
              (std::vector<std::vector<std::int64_t>>{{1, 2}, {3, 4}}));
  }
}

TEST(data_loader_test, refuses_a_batch_with_other_rows_than_samples) {
  auto context = make_context();
  data_loader_options options{.batch_size = 2};
  auto loader = prepare_data_loader(context, forgetful{}, options);
  try {
    loader.begin();
    FAIL() << "nothing was thrown";
  } catch (const train_error& x) {
    EXPECT_EQ(x.reason().message,
              "the dataset failed at a batch of samples 0 1: the batch has no "
              "tensor with 2 rows, one for each sample (check_rows of the "
              "loader's options can be turned off)");
  }
  options.check_rows = false;
  auto unchecked = prepare_data_loader(context, forgetful{}, options);
  EXPECT_EQ((*unchecked.begin()).size(0), 1);
}

TEST(data_loader_test, finds_the_rows_of_batches_of_any_type) {
  auto two = at::ones({2, 3});
  EXPECT_TRUE(has_rows(two, 2));
  EXPECT_FALSE(has_rows(two, 3));
  EXPECT_FALSE(has_rows(at::scalar_tensor(1), 1));
  EXPECT_TRUE(has_rows(std::tuple{at::ones({5}), two, 7}, 2));
  EXPECT_FALSE(has_rows(std::tuple{at::ones({5}), 7}, 2));
  EXPECT_TRUE(has_rows(std::vector{at::ones({4}), at::ones({6})}, 2));
  EXPECT_FALSE(has_rows(std::vector{at::ones({4}), at::ones({6})}, 3));
  EXPECT_TRUE(has_rows(
    std::map<std::string, std::optional<at::Tensor>>{
      {"image", two}, {"mask", std::nullopt}, {"x", two}},
    2));
  EXPECT_TRUE(has_rows(named_sample{two, at::ones({9})}, 2));
}
