#include "troupe/trainers/torch/data/distributed_sampler.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <sstream>

#include <cereal/archives/portable_binary.hpp>
#include <gtest/gtest.h>

#include "troupe/trainers/torch/data/epoch_random.hpp"
#include "troupe/trainers/train_context.hpp"

using namespace troupe;
using namespace troupe::internal;

namespace {

using index_list = std::vector<std::int64_t>;

struct world {
  std::int64_t samples;
  int ranks;
  std::int64_t batch;
  troupe::tail tail;
  bool shuffle = true;

  distributed_sampler sampler(int rank) const {
    return {samples,
            {.batch_size = batch,
             .rank = rank,
             .world_size = ranks,
             .shuffle = shuffle,
             .seed = 5,
             .tail = tail}};
  }
};

/// Calls *f* with many worlds of tail mode *mode*.
template <class F>
void for_many_worlds(tail mode, F f) {
  for (std::int64_t samples : {0, 1, 2, 3, 5, 7, 12, 16, 31, 64})
    for (int ranks : {1, 2, 3, 4, 7})
      for (std::int64_t batch : {1, 2, 3, 5, 100}) {
        SCOPED_TRACE(testing::Message() << samples << " samples, " << ranks
                                        << " ranks, batch " << batch);
        f(world{samples, ranks, batch, mode});
      }
}

index_list rest_of(distributed_sampler& x) {
  index_list result;
  while (auto batch = x.next())
    result.insert(result.end(), batch->begin(), batch->end());
  return result;
}

/// What the ranks of *x* see from *state* on, one after the other.
index_list all_ranks(const world& x, const sampler_state& state) {
  index_list result;
  for (int rank = 0; rank < x.ranks; ++rank) {
    auto sampler = x.sampler(rank);
    sampler.load_state(state);
    sampler.set_epoch(state.epoch);
    sampler.start();
    auto mine = rest_of(sampler);
    result.insert(result.end(), mine.begin(), mine.end());
  }
  return result;
}

index_list sorted(index_list x) {
  std::ranges::sort(x);
  return x;
}

index_list numbers(std::int64_t n) {
  index_list result(static_cast<std::size_t>(n));
  std::iota(result.begin(), result.end(), 0);
  return result;
}

} // namespace

TEST(distributed_sampler_test, shows_every_sample_once_without_padding) {
  for_many_worlds(tail::no_padding, [](const world& x) {
    EXPECT_EQ(sorted(all_ranks(x, {5, 0, 0})), numbers(x.samples));
    std::vector<std::int64_t> shares;
    for (int rank = 0; rank < x.ranks; ++rank) {
      auto sampler = x.sampler(rank);
      shares.push_back(std::ssize(rest_of(sampler)));
    }
    auto [least, most] = std::ranges::minmax(shares);
    EXPECT_LE(most - least, 1);
  });
}

TEST(distributed_sampler_test, leaves_out_the_rest_of_a_batch_if_asked_to) {
  for_many_worlds(tail::drop_last, [](const world& x) {
    auto global = x.batch * x.ranks;
    auto seen = all_ranks(x, {5, 0, 0});
    EXPECT_EQ(std::ssize(seen), x.samples / global * global);
    EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), seen.size());
    for (int rank = 0; rank < x.ranks; ++rank)
      EXPECT_EQ(x.sampler(rank).batches(), x.samples / global);
  });
}

TEST(distributed_sampler_test, pads_and_strides_as_python_does) {
  for_many_worlds(tail::pad, [](const world& x) {
    // indices += first indices until divisible; indices[rank::world_size]
    auto indices = permutation(x.samples, 5, 0);
    auto total = (x.samples + x.ranks - 1) / x.ranks * x.ranks;
    for (std::int64_t i = 0; std::ssize(indices) < total; ++i)
      indices.push_back(indices[static_cast<std::size_t>(i % x.samples)]);
    for (int rank = 0; rank < x.ranks; ++rank) {
      index_list expected;
      for (auto i = std::int64_t{rank}; i < total; i += x.ranks)
        expected.push_back(indices[static_cast<std::size_t>(i)]);
      auto sampler = x.sampler(rank);
      EXPECT_EQ(rest_of(sampler), expected);
    }
  });
}

TEST(distributed_sampler_test, fills_every_batch_but_the_last) {
  for (auto mode : {tail::pad, tail::no_padding, tail::drop_last})
    for_many_worlds(mode, [](const world& x) {
      for (int rank = 0; rank < x.ranks; ++rank) {
        auto sampler = x.sampler(rank);
        std::vector<std::int64_t> sizes;
        while (auto batch = sampler.next())
          sizes.push_back(std::ssize(*batch));
        EXPECT_EQ(std::ssize(sizes), sampler.batches());
        for (std::size_t i = 0; i + 1 < sizes.size(); ++i)
          EXPECT_EQ(sizes[i], x.batch);
        EXPECT_EQ(std::ranges::count(sizes, 0), 0);
      }
    });
}

TEST(distributed_sampler_test, keeps_the_natural_order_without_shuffle) {
  world x{7, 1, 3, tail::pad, false};
  EXPECT_EQ(all_ranks(x, {}), numbers(7));
}

TEST(distributed_sampler_test, resumes_exactly_at_every_batch) {
  for (auto mode : {tail::pad, tail::no_padding, tail::drop_last})
    for_many_worlds(mode, [](const world& x) {
      for (int rank = 0; rank < x.ranks; ++rank) {
        auto original = x.sampler(rank);
        original.set_epoch(3);
        original.start();
        bool more = true;
        while (more) {
          auto state = original.state();
          auto twin = original;
          auto resumed = x.sampler(rank);
          resumed.load_state(state);
          resumed.set_epoch(3);
          resumed.start();
          EXPECT_EQ(rest_of(resumed), rest_of(twin));
          EXPECT_EQ(resumed.state(), twin.state());
          more = original.next().has_value();
        }
      }
    });
}

TEST(distributed_sampler_test, divides_the_rest_of_an_epoch_again) {
  for_many_worlds(tail::no_padding, [](const world& before) {
    for (int ranks : {1, 2, 5}) {
      world after{before.samples, ranks, before.batch + 1, tail::no_padding};
      // Rank 0 never has fewer batches than another.
      auto leader = before.sampler(0);
      index_list seen;
      for (std::int64_t steps = 0; leader.next(); ++steps) {
        seen.clear();
        for (int rank = 0; rank < before.ranks; ++rank) {
          auto sampler = before.sampler(rank);
          for (std::int64_t i = 0; i <= steps; ++i)
            if (auto batch = sampler.next())
              seen.insert(seen.end(), batch->begin(), batch->end());
        }
        auto rest = all_ranks(after, leader.state());
        seen.insert(seen.end(), rest.begin(), rest.end());
        EXPECT_EQ(sorted(seen), numbers(before.samples));
      }
    }
  });
}

TEST(distributed_sampler_test, begins_the_next_epoch_when_one_is_used_up) {
  auto sampler = world{8, 1, 4, tail::pad}.sampler(0);
  sampler.start();
  auto first = rest_of(sampler);
  sampler.start();
  EXPECT_EQ(sampler.state().epoch, 1u);
  EXPECT_NE(rest_of(sampler), first);
  sampler.set_epoch(0);
  sampler.start();
  EXPECT_EQ(rest_of(sampler), first);
}

TEST(distributed_sampler_test, starts_an_epoch_over_that_was_left_early) {
  auto sampler = world{8, 1, 2, tail::pad}.sampler(0);
  sampler.start();
  auto first = sampler.next();
  sampler.start();
  EXPECT_EQ(sampler.next(), first);
}

TEST(distributed_sampler_test, forgets_a_loaded_position_in_another_epoch) {
  auto sampler = world{8, 1, 2, tail::pad}.sampler(0);
  sampler.load_state({5, 2, 4});
  sampler.set_epoch(3);
  sampler.start();
  EXPECT_EQ(sampler.state(), (sampler_state{5, 3, 0}));
}

TEST(distributed_sampler_test, stays_at_the_end_of_a_finished_epoch) {
  auto sampler = world{8, 1, 2, tail::pad}.sampler(0);
  sampler.load_state({5, 2, 8});
  sampler.set_epoch(2);
  sampler.start();
  EXPECT_FALSE(sampler.next());
}

TEST(distributed_sampler_test, takes_the_seed_of_a_loaded_state) {
  auto sampler = world{64, 1, 64, tail::pad}.sampler(0);
  sampler.load_state({77, 1, 0});
  sampler.start();
  EXPECT_EQ(sampler.next(), permutation(64, 77, 1));
}

TEST(distributed_sampler_test, saves_its_state_with_cereal) {
  const sampler_state saved{1, 2, 3};
  std::stringstream bytes;
  cereal::PortableBinaryOutputArchive{bytes}(saved);
  sampler_state loaded;
  cereal::PortableBinaryInputArchive{bytes}(loaded);
  EXPECT_EQ(loaded, saved);
}

TEST(distributed_sampler_test, refuses_what_makes_no_sense) {
  using sampler = distributed_sampler;
  EXPECT_THROW(sampler(-1, {}), train_error);
  EXPECT_THROW(sampler(1, {.batch_size = 0}), train_error);
  EXPECT_THROW(sampler(1, {.batch_size = INT64_MAX}), train_error);
  EXPECT_THROW(sampler(1, {.world_size = 0}), train_error);
  EXPECT_THROW(sampler(1, {.rank = 1}), train_error);
  EXPECT_THROW(sampler(1, {.rank = -1}), train_error);
  for (auto mode : {tail::pad, tail::no_padding, tail::drop_last}) {
    sampler x{4, {.tail = mode}};
    EXPECT_THROW(x.load_state({0, 0, 5}), train_error);
    EXPECT_THROW(x.load_state({0, 0, -1}), train_error);
    EXPECT_NO_THROW(x.load_state({0, 0, 4}));
  }
}

// A world that pads more must not leave a position that another refuses, nor
// one that leaves out more an epoch of the rest.
TEST(distributed_sampler_test, ends_an_epoch_at_one_position_in_any_world) {
  for (auto mode : {tail::pad, tail::drop_last})
    for_many_worlds(mode, [mode](const world& x) {
      auto sampler = x.sampler(0);
      sampler.start();
      (void) rest_of(sampler);
      EXPECT_EQ(sampler.state().cursor, x.samples);
      auto alone = world{x.samples, 1, 1, mode}.sampler(0);
      alone.load_state(sampler.state());
      alone.start();
      EXPECT_EQ(std::ssize(rest_of(alone)), x.samples); // the next epoch
    });
}

// Earlier versions counted the padding of an epoch's end.
TEST(distributed_sampler_test, knows_the_padded_end_of_an_earlier_version) {
  auto x = world{4, 3, 1, tail::pad}.sampler(0);
  x.load_state({5, 2, 6});
  EXPECT_EQ(x.state(), (sampler_state{5, 2, 4}));
  x.start();
  EXPECT_EQ(x.state(), (sampler_state{5, 3, 0})) << "the epoch was over";
  EXPECT_THROW(x.load_state({5, 2, 7}), train_error);
}

TEST(sample_order_test, gives_the_samples_of_a_function_and_resumes_in_them) {
  auto backwards = [](std::uint64_t, std::uint64_t epoch) {
    auto first = static_cast<std::int64_t>(epoch);
    return index_list{first + 4, first + 2, first, first + 2};
  };
  auto sampler = [&](int rank, int ranks) {
    return distributed_sampler{
      10, {.rank = rank, .world_size = ranks, .order = backwards}};
  };
  auto first = sampler(0, 2);
  auto second = sampler(1, 2);
  EXPECT_EQ(first.samples(), 4);
  first.set_epoch(3);
  second.set_epoch(3);
  first.start();
  second.start();
  EXPECT_EQ(*first.next(), index_list{7});
  EXPECT_EQ(*second.next(), index_list{5});
  auto alone = sampler(0, 1);
  alone.load_state(first.state());
  alone.start();
  EXPECT_EQ(rest_of(alone), (index_list{3, 5}));
}

TEST(sample_order_test, is_refused_if_it_does_not_fit) {
  auto order = [](index_list x) {
    return [x](std::uint64_t, std::uint64_t epoch) {
      auto result = x;
      result.resize(x.size() + epoch);
      return result;
    };
  };
  EXPECT_THROW((distributed_sampler{3, {.shuffle = true, .order = order({})}}),
               train_error);
  for (auto wrong : {-1, 3}) {
    distributed_sampler sampler{3, {.order = order({wrong})}};
    EXPECT_THROW(sampler.next(), train_error);
  }
  distributed_sampler longer{3, {.order = order({1})}};
  longer.set_epoch(1);
  EXPECT_THROW(longer.next(), train_error);
}

TEST(batch_order_test, is_refused_if_it_does_not_fit) {
  auto batches = [](std::vector<index_list> x) {
    return [x](std::uint64_t, std::uint64_t epoch) {
      auto result = x;
      result.resize(x.size() + epoch);
      return result;
    };
  };
  auto make = [](sampler_options x) { return distributed_sampler{3, x}; };
  auto one = batches({{0, 1}});
  EXPECT_THROW(make({.shuffle = true, .batches = one}), train_error);
  EXPECT_THROW(make({.batch_size = 2, .batches = one}), train_error);
  EXPECT_THROW(make({.order = weighted_order({1}, 1), .batches = one}),
               train_error);
  EXPECT_THROW(make({.batches = batches({{0}, {}})}).next(), train_error);
  auto longer = make({.batches = one});
  longer.set_epoch(1);
  EXPECT_THROW(longer.next(), train_error);
  for (auto wrong : {-1, 3}) {
    auto sampler = make({.batches = batches({{0}, {1, wrong}})});
    try {
      sampler.next();
      FAIL() << "nothing was thrown";
    } catch (const train_error& x) {
      EXPECT_EQ(x.reason().message, "batch 1 of epoch 0 has sample "
                                      + std::to_string(wrong)
                                      + ", but the dataset has 3, 0 to 2");
    }
  }
}

TEST(weighted_order_test, draws_samples_by_their_weights) {
  auto order = weighted_order({0, 1, 0, 3, 0}, 20000);
  auto drawn = order(7, 2);
  EXPECT_EQ(drawn, order(7, 2));
  EXPECT_NE(drawn, order(7, 3));
  auto ones = std::ranges::count(drawn, 1);
  auto threes = std::ranges::count(drawn, 3);
  EXPECT_EQ(ones + threes, 20000);
  EXPECT_NEAR(static_cast<double>(threes) / 20000, 0.75, 0.02);
}

TEST(weighted_order_test, refuses_weights_that_mean_nothing) {
  EXPECT_THROW(weighted_order({}, 1), train_error);
  EXPECT_THROW(weighted_order({0, 0}, 1), train_error);
  EXPECT_THROW(weighted_order({1, -1}, 1), train_error);
  EXPECT_THROW(weighted_order({1, std::numeric_limits<double>::infinity()}, 1),
               train_error);
  EXPECT_THROW(weighted_order({1}, -1), train_error);
}
