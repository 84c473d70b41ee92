// Collectives for tensors, between rank processes.

#include "troupe/trainers/torch/collectives.hpp"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tests/support/temporary_folder.hpp"
#include "troupe/trainers/torch/data/data_loader.hpp"
#include "troupe/trainers/torch/data/stream_loader.hpp"
#include "troupe/trainers/torch/torch_trainer.hpp"

namespace troupe::internal::test {

using testing::HasSubstr;

namespace {

void require(bool holds, const char* what) {
  if (!holds)
    throw std::runtime_error{what};
}

/// The numbers 0 to 9.
struct numbers {
  std::int64_t size() const { return 10; }
  std::int64_t get(std::size_t index) const {
    return static_cast<std::int64_t>(index);
  }
};

void reduce(train_context& context) {
  auto n = context.world_size();
  auto mine = [&] { return at::full({2, 3}, context.rank() + 1.0); };
  auto is = [](const at::Tensor& x, double value) {
    return x.eq(value).all().item<bool>();
  };
  auto sum = n * (n + 1) / 2.0;
  require(is(all_reduce(context, mine()), sum), "sum");
  require(is(all_reduce(context, mine(), reduce_op::mean), sum / n), "mean");
  auto large = at::full({2}, 40000, at::kHalf); // 65504 is the largest
  require(is(all_reduce(context, large, reduce_op::mean), 40000), "half");
  require(is(large, 40000) && large.scalar_type() == at::kHalf, "in place");
  require(is(all_reduce(context, mine(), reduce_op::min), 1), "min");
  require(is(all_reduce(context, mine(), reduce_op::max), n), "max");
  auto view = mine().t();
  all_reduce(context, view);
  require(is(view, sum), "in place, of a view");
  auto counts = at::full({2}, context.rank(), at::kLong);
  require(is(all_reduce(context, counts, reduce_op::max), n - 1), "integers");
}

void gather(train_context& context) {
  auto rows = all_gather(
    context, at::full({context.rank() + 1, 2}, context.rank(), at::kInt));
  require(rows.size() == static_cast<std::size_t>(context.world_size()),
          "one for each rank");
  for (int rank = 0; rank < context.world_size(); ++rank)
    require(rows[static_cast<std::size_t>(rank)].equal(
              at::full({rank + 1, 2}, rank, at::kInt)),
            "rows of each rank");
  auto numbers = all_gather(context, at::scalar_tensor(context.rank()));
  require(numbers.back().item<double>() == context.world_size() - 1, "scalars");
  auto x = at::full({3}, context.rank());
  broadcast(context, x, context.world_size() - 1);
  require(x.eq(context.world_size() - 1).all().item<bool>(), "broadcast");
}

void gather_samples(train_context& context) {
  for (auto shuffle : {false, true}) {
    auto loader = prepare_data_loader(context, numbers{},
                                      {.batch_size = 2, .shuffle = shuffle});
    std::vector<at::Tensor> seen;
    for (auto& batch : loader)
      seen.push_back(gather_for_metrics(context, loader, batch));
    auto all = at::cat(seen);
    require(std::get<0>(all.sort()).equal(at::arange(10)),
            "each sample once, whatever padding added");
    require(shuffle || all.equal(at::arange(10)), "in the order of the epoch");
  }
}

/// Shard s has s + 1 samples: 100 * s + i.
struct growing_stream {
  struct reader {
    std::optional<std::int64_t> next() {
      return at <= shard ? std::optional{100 * shard + at++} : std::nullopt;
    }
    std::int64_t shard;
    std::int64_t at = 0;
  };

  reader open(const stream_shard& x) const { return {x.index}; }
};

void gather_stream(train_context& context) {
  auto loader = prepare_data_loader(context, growing_stream{},
                                    {.batch_size = 2, .shards = 4});
  require(loader.own_samples_in_batch() == -1, "before the loop");
  std::vector<at::Tensor> seen;
  for (auto& batch : loader)
    seen.push_back(gather_for_metrics(context, loader, batch));
  require(loader.own_samples_in_batch() == -1, "after the loop");
  std::vector<std::int64_t> wanted{0,   100, 101, 200, 201,
                                   202, 300, 301, 302, 303};
  require(std::get<0>(at::cat(seen).sort()).equal(at::tensor(wanted)),
          "each sample once, whatever padding added");
}

void misuse(train_context& context, const std::string& what) {
  if (what == "gradient")
    all_reduce(context, at::ones({1}).requires_grad_());
  else if (what == "mean")
    all_reduce(context, at::ones({1}, at::kLong), reduce_op::mean);
  else if (what == "root")
    broadcast(context, at::ones({1}), context.world_size());
  else if (what == "sparse")
    all_reduce(context, at::eye(2).to_sparse());
  auto loader = prepare_data_loader(
    context, numbers{}, {.batch_size = 2, .tail = tail::no_padding});
  for (auto& batch : loader)
    gather_for_metrics(context, loader, batch);
}

void gather_unequal_rows(train_context& context) {
  all_gather(context,
             context.rank() == 0 ? at::ones({3, 4}) : at::ones({3, 2, 2}));
}

void gather_unequal_stream(train_context& context) {
  auto loader = prepare_data_loader(context, growing_stream{},
                                    {.shards = 4, .tail = tail::no_padding});
  for (auto& batch : loader)
    gather_for_metrics(context, loader, batch);
}

} // namespace

class collectives_test : public testing::TestWithParam<int> {
protected:
  torch_options options() {
    torch_options x;
    x.scaling = {.num_workers = GetParam()};
    x.run.name = "run";
    x.run.storage_path = storage_.path();
    x.run.quiet = true;
    return x;
  }

  void expect_success(void (*loop)(train_context&)) {
    auto x = torch_trainer{loop, options()}.fit();
    EXPECT_FALSE(x.error) << x.error->message;
  }

  temporary_folder storage_;
};

TEST_P(collectives_test, reduce_numbers_in_four_ways) {
  expect_success(reduce);
}

TEST_P(collectives_test, gather_and_broadcast_tensors) {
  expect_success(gather);
}

TEST_P(collectives_test, gather_rows_of_one_shape) {
  auto x = torch_trainer{gather_unequal_rows, options()}.fit();
  ASSERT_EQ(x.error.has_value(), GetParam() > 1);
  if (x.error) {
    EXPECT_THAT(x.error->message, HasSubstr("has rows of another shape"));
  }
}

TEST_P(collectives_test, gather_for_metrics_has_each_sample_once) {
  expect_success(gather_samples);
}

TEST_P(collectives_test, gather_for_metrics_has_each_sample_of_a_stream_once) {
  expect_success(gather_stream);
}

TEST_P(collectives_test, gather_for_metrics_needs_equal_steps_of_a_stream) {
  auto x = torch_trainer{gather_unequal_stream, options()}.fit();
  EXPECT_EQ(x.error.has_value(), GetParam() > 1);
}

TEST_P(collectives_test, refuse_what_they_cannot_do) {
  for (auto& [what, text] : std::map<std::string, std::string>{
         {"gradient", "gradients do not pass"},
         {"mean", "convert them to floating point"},
         {"root", "the ranks are 0 to"},
         {"sparse", "x.to_dense()"},
         {"tail", "tail::no_padding"}}) {
    auto x = options();
    x.run.name = what;
    auto y = torch_trainer{misuse, what, x}.fit();
    ASSERT_TRUE(y.error) << what;
    EXPECT_THAT(y.error->message, HasSubstr(text));
  }
}

INSTANTIATE_TEST_SUITE_P(worlds, collectives_test, testing::Values(1, 3));

} // namespace troupe::internal::test
