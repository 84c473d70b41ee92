// Loaders that do not know how many batches they have.

#include "tests/integration/torch/loop/loop_test.hpp"

namespace troupe::internal::test {

namespace {

/// The samples of a curve; every shard has each *count*-th.
struct curve_stream {
  struct reader {
    std::optional<batch> next() {
      if (at >= samples.size())
        return std::nullopt;
      auto i = static_cast<std::size_t>(at);
      at += step;
      return samples.get(i);
    }
    curve samples;
    std::int64_t at;
    std::int64_t step;
  };

  reader open(const stream_shard& x) const {
    return {samples, x.index, x.count};
  }

  curve samples;
};

} // namespace

TEST_F(loop_test, trains_and_validates_on_streams) {
  std::vector<std::int64_t> steps(2);
  std::vector<double> seen(2), rates(2);
  auto x = run(2, [&](train_context& context) {
    // 5, 5, 5 and 4 samples: 10 of rank 0, 9 of rank 1.
    auto train = prepare_data_loader(context, curve_stream{{19}},
                                     {.batch_size = 4, .shards = 4});
    auto validation = prepare_data_loader(
      context, curve_stream{{7}},
      {.batch_size = 4, .shards = 4, .tail = tail::no_padding});
    epoch_loop loop{context, {.max_epochs = 2}};
    loop.fit(std::make_shared<curve_module>(), train, validation);
    auto rank = static_cast<std::size_t>(context.rank());
    steps[rank] = loop.global_step();
    rates[rank] = loop.callback_metrics().number("loss");
    seen[rank] = loop.optimizer().lr().at(0);
  });
  ASSERT_FALSE(x.error) << x.error->message;
  EXPECT_EQ(steps, (std::vector<std::int64_t>{6, 6}));
  EXPECT_EQ(rates[0], rates[1]);
  EXPECT_EQ(seen[0], 0.05 * warm_up(2)); // a step of the schedule per epoch
}

TEST_F(loop_test, divides_a_stream_of_one_seed) {
  auto x = run(2, [](train_context& context) {
    auto seed = static_cast<std::uint64_t>(context.rank());
    auto train = prepare_data_loader(
      context, curve_stream{{8}}, {.batch_size = 2, .shards = 2, .seed = seed});
    epoch_loop{context}.fit(std::make_shared<curve_module>(), train);
  });
  ASSERT_TRUE(x.error);
  EXPECT_NE(x.error->message.find("rank 1: the loader for training divides 2 "
                                  "shards of a stream with seed 1, but rank "
                                  "0's 2 shards of a stream with seed 0"),
            std::string::npos)
    << x.error->message;
}

TEST_F(loop_test, refuses_what_it_cannot_do_without_a_number_of_batches) {
  auto with = [&](loop_options options, std::int64_t samples) {
    return failure_of([=](train_context& context) {
      auto train =
        prepare_data_loader(context, curve_stream{{samples}}, {.shards = 1});
      epoch_loop loop{context, options};
      loop.fit(std::make_shared<curve_module>(), train);
    });
  };
  EXPECT_NE(with({.accumulate_grad_batches = 2}, 4)
              .find("does not know how many batches it has"),
            std::string::npos);
  EXPECT_NE(with({}, 0).find("has no batches in epoch 0"), std::string::npos);
}

} // namespace troupe::internal::test
