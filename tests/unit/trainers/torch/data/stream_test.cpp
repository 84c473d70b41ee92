#include "troupe/trainers/torch/data/stream_loader.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>

#include <ATen/Functions.h>
#include <gmock/gmock.h>

#include "tests/unit/trainers/torch/data/loader_fixture.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

using numbers = std::vector<std::int64_t>;

/// Sample i of shard s is 100 * s + i, and 10000 * epoch more.
struct counting_reader {
  std::optional<std::int64_t> next() {
    if (at == length)
      return std::nullopt;
    if (at == broken_at)
      throw std::runtime_error{"unlucky"};
    return first + at++;
  }

  std::int64_t first;
  std::int64_t length;
  std::int64_t broken_at = -1;
  std::int64_t at = 0;
};

/// As many shards as lengths.
struct counting_stream {
  counting_reader open(const stream_shard& shard) const {
    auto i = static_cast<std::size_t>(shard.index);
    if (lengths.at(i) < 0)
      throw std::runtime_error{"no such file"};
    return {100 * shard.index + 10000 * static_cast<std::int64_t>(shard.epoch),
            lengths[i], shard.index == 2 ? broken_at : -1};
  }

  numbers lengths;
  std::int64_t broken_at = -1;
};

/// The same, with readers that know how to skip.
struct skipping_stream : counting_stream {
  struct reader : counting_reader {
    void skip(std::int64_t n) { at = n; }
  };
  reader open(const stream_shard& shard) const {
    return {counting_stream::open(shard)};
  }
};

struct live_stream : counting_stream {
  static constexpr bool resumable = false;
};

/// Puts samples in batches as a pair: the samples, and how many.
struct own_batches : counting_stream {
  std::pair<at::Tensor, std::int64_t>
  collate(std::vector<std::int64_t> samples) const {
    if (std::ranges::count(samples, refused) > 0)
      throw std::runtime_error{"no batch can have this"};
    auto n = static_cast<std::int64_t>(samples.size());
    return {at::tensor(samples).slice(0, 0, n - missing), n};
  }
  std::int64_t missing = 0;
  std::int64_t refused = -1;
};

/// A batch is the thread that put it together, for each of its samples.
struct thread_batches : counting_stream {
  std::vector<std::thread::id>
  collate(const std::vector<std::int64_t>& samples) const {
    return std::vector(samples.size(), std::this_thread::get_id());
  }
};

/// What is left of a pass.
template <class Loader>
std::vector<numbers> batches_of(Loader& loader) {
  std::vector<numbers> result;
  for (auto& batch : loader)
    result.push_back(to_vector(batch));
  return result;
}

template <class Loader>
std::string failure_of(Loader&& loader) {
  try {
    for ([[maybe_unused]] auto& batch : loader) {
    }
  } catch (const train_error& x) {
    EXPECT_EQ(x.reason().code, ec::invalid_argument);
    return x.what();
  }
  return "";
}

const counting_stream uneven{{5, 0, 3, 1, 9}};

} // namespace

TEST(stream_test, gives_a_sample_of_each_shard_in_turn) {
  auto context = make_context();
  auto loader =
    prepare_data_loader(context, uneven, {.batch_size = 4, .shards = 5});
  EXPECT_THAT(batches_of(loader),
              ElementsAre(numbers{0, 200, 300, 400}, numbers{1, 201, 401, 2},
                          numbers{202, 402, 3, 403}, numbers{4, 404, 405, 406},
                          numbers{407, 408}));
}

TEST(stream_test, gives_the_same_with_any_number_of_threads) {
  auto context = make_context();
  stream_loader_options options{.batch_size = 3, .shards = 5};
  auto plain = prepare_data_loader(context, uneven, options);
  auto expected = batches_of(plain);
  for (int workers : {1, 2, 5, 9}) {
    options.workers = workers;
    auto loader = prepare_data_loader(context, uneven, options);
    EXPECT_EQ(batches_of(loader), expected) << workers;
    EXPECT_EQ(loader.state(), plain.state());
  }
}

TEST(stream_test, counts_no_samples_once_its_loop_is_left) {
  auto context = make_context();
  auto loader = prepare_data_loader(context, counting_stream{{4}},
                                    {.batch_size = 2, .shards = 1});
  for ([[maybe_unused]] auto& batch : loader) {
    EXPECT_EQ(loader.own_samples_in_batch(), 2);
    break;
  }
  EXPECT_EQ(loader.own_samples_in_batch(), -1);
}

TEST(stream_test, counts_the_samples_of_a_pass_that_replaces_another) {
  auto context = make_context();
  auto loader = prepare_data_loader(context, counting_stream{{4}},
                                    {.batch_size = 2, .shards = 1});
  auto place = loader.begin();
  while (place != loader.end())
    ++place;
  EXPECT_EQ(loader.own_samples_in_batch(), -1);
  loader.set_epoch(1);
  place = loader.begin();
  EXPECT_EQ(loader.own_samples_in_batch(), 2);
}

TEST(stream_test, drops_the_last_batch_if_asked_to) {
  auto context = make_context();
  auto loader = prepare_data_loader(
    context, uneven, {.batch_size = 4, .shards = 5, .tail = tail::drop_last});
  EXPECT_EQ(batches_of(loader).size(), 4u);
  EXPECT_TRUE(loader.state().ended);
}

TEST(stream_test, begins_the_next_epoch_after_one_that_ended) {
  auto context = make_context();
  auto loader =
    prepare_data_loader(context, counting_stream{{2}}, {.shards = 1});
  EXPECT_THAT(batches_of(loader), ElementsAre(numbers{0}, numbers{1}));
  EXPECT_THAT(batches_of(loader), ElementsAre(numbers{10000}, numbers{10001}));
  loader.set_epoch(7);
  loader.begin(); // left early
  EXPECT_THAT(batches_of(loader), ElementsAre(numbers{70000}, numbers{70001}));
  loader.set_epoch(0);
  EXPECT_THAT(batches_of(loader), ElementsAre(numbers{0}, numbers{1}));
}

TEST(stream_test, begins_an_epoch_again_that_each_rank_has_ended_alone) {
  auto pass = [](int rank, const stream_state* from, stream_state& end) {
    auto context = make_context(rank, 2);
    auto loader = prepare_data_loader(context, uneven,
                                      {.shards = 5, .tail = tail::no_padding});
    if (from)
      loader.load_state(*from);
    loader.set_epoch(0);
    auto result = batches_of(loader);
    end = loader.state();
    return result;
  };
  stream_state saved, unused;
  auto first = pass(0, nullptr, saved);
  auto second = pass(1, nullptr, unused);
  EXPECT_EQ(first.size(), 17u);
  EXPECT_EQ(second.size(), 1u);
  EXPECT_TRUE(saved.ended);
  EXPECT_EQ(pass(0, &saved, unused), first);
  EXPECT_EQ(pass(1, &saved, unused), second);
}

template <class Stream>
void expect_resumed_everywhere(const Stream& stream) {
  auto context = make_context();
  for (int workers : {0, 2}) {
    const stream_loader_options options{
      .batch_size = 2, .shards = 5, .workers = workers};
    auto whole_loader = prepare_data_loader(context, stream, options);
    whole_loader.set_epoch(3);
    auto whole = batches_of(whole_loader);
    ASSERT_EQ(whole.size(), 9u);
    for (std::size_t stop = 1; stop <= whole.size(); ++stop) {
      auto loader = prepare_data_loader(context, stream, options);
      loader.set_epoch(3);
      auto position = loader.begin();
      for (std::size_t i = 1; i < stop; ++i)
        ++position;
      auto resumed = prepare_data_loader(context, stream, options);
      resumed.load_state(loader.state());
      resumed.set_epoch(3);
      EXPECT_EQ(
        batches_of(resumed),
        std::vector<numbers>(whole.begin() + static_cast<std::ptrdiff_t>(stop),
                             whole.end()))
        << stop;
    }
  }
}

TEST(stream_test, resumes_after_the_batch_that_the_loop_saw_last) {
  expect_resumed_everywhere(uneven);
}

TEST(stream_test, resumes_by_the_skip_of_a_reader) {
  expect_resumed_everywhere(skipping_stream{uneven});
}

TEST(stream_test, names_rank_shard_and_sample_that_failed_until_the_pass_ends) {
  auto context = make_context();
  auto stream = uneven;
  stream.broken_at = 1;
  for (int workers : {0, 2}) {
    auto loader = prepare_data_loader(
      context, stream, {.batch_size = 3, .shards = 5, .workers = workers});
    auto position = loader.begin();
    for (int again = 0; again < 2; ++again)
      try {
        ++position;
        FAIL() << "nothing was thrown";
      } catch (const train_error& x) {
        EXPECT_STREQ(x.what(), "rank 0: shard 2 of 5 of the stream, epoch 0, "
                               "failed at its sample 1: unlucky");
        EXPECT_THROW(std::rethrow_if_nested(x), std::runtime_error);
      }
  }
}

TEST(stream_test, names_the_shard_that_does_not_open) {
  auto context = make_context();
  EXPECT_THAT(
    failure_of(
      prepare_data_loader(context, counting_stream{{2, -1}}, {.shards = 2})),
    testing::AllOf(HasSubstr("shard 1 of 2"), HasSubstr("no such file")));
}

TEST(stream_test, refuses_a_place_in_data_that_has_changed) {
  auto context = make_context();
  auto loader =
    prepare_data_loader(context, counting_stream{{2}}, {.shards = 1});
  loader.load_state({.epoch = 0, .taken = {5}});
  EXPECT_THAT(failure_of(loader),
              HasSubstr("ended after 2 samples, but 5 were taken"));
}

TEST(stream_test, refuses_a_place_that_it_cannot_find) {
  auto context = make_context();
  auto loader = prepare_data_loader(context, uneven, {.shards = 5});
  EXPECT_THROW(loader.load_state({.taken = {1, 1}}), train_error);
  auto live = prepare_data_loader(context, live_stream{uneven}, {.shards = 5});
  EXPECT_THROW(live.load_state({.taken = {1, 0, 1, 1, 1}}), train_error);
  live.load_state({.epoch = 2, .ended = true, .taken = {5, 0, 3, 1, 9}});
  EXPECT_EQ(batches_of(live).front(), numbers{30000});
}

TEST(stream_test, lets_the_dataset_make_its_batches) {
  auto context = make_context();
  auto loader = prepare_data_loader(context, own_batches{uneven},
                                    {.batch_size = 16, .shards = 5});
  auto position = loader.begin();
  EXPECT_EQ((*position).first.size(0), 16);
  EXPECT_EQ((*position).second, 16);
}

TEST(stream_test, makes_its_batches_ahead_of_the_loop_if_it_has_workers) {
  auto context = make_context();
  for (int workers : {0, 1, 3}) {
    auto loader =
      prepare_data_loader(context, thread_batches{uneven},
                          {.batch_size = 4, .shards = 5, .workers = workers});
    int batches = 0; // the last one has two samples
    for (auto& batch : loader) {
      ++batches;
      EXPECT_EQ(batch.front() == std::this_thread::get_id(), workers == 0);
    }
    EXPECT_EQ(batches, 5);
  }
}

TEST(stream_test, refuses_a_batch_with_other_rows_than_samples) {
  auto context = make_context();
  const own_batches short_ones{uneven, 1};
  for (int workers : {0, 2}) {
    stream_loader_options options{
      .batch_size = 16, .shards = 5, .workers = workers};
    EXPECT_THAT(failure_of(prepare_data_loader(context, short_ones, options)),
                testing::AllOf(HasSubstr("batch of 16 samples"),
                               HasSubstr("no tensor with 16 rows")));
    options.check_rows = false;
    EXPECT_EQ(failure_of(prepare_data_loader(context, short_ones, options)),
              "");
  }
}

TEST(stream_test, goes_past_a_batch_that_cannot_be_put_together) {
  auto context = make_context();
  for (int workers : {0, 2}) {
    auto loader =
      prepare_data_loader(context, own_batches{uneven, 0, 200},
                          {.batch_size = 4, .shards = 5, .workers = workers});
    // Sample 200 is in the first batch.
    EXPECT_THROW(loader.begin(), train_error);
    EXPECT_EQ(loader.state().taken, (numbers{1, 0, 1, 1, 1}));
    loader.load_state(loader.state());
    EXPECT_EQ((*loader.begin()).first[0].item<std::int64_t>(), 1);
  }
}

TEST(stream_test, takes_all_samples_at_once) {
  auto context = make_context();
  for (int workers : {0, 2}) {
    auto loader = prepare_data_loader(
      context, uneven,
      {.batch_size = std::numeric_limits<std::int64_t>::max(),
       .shards = 5,
       .workers = workers});
    auto batches = batches_of(loader);
    ASSERT_EQ(batches.size(), 1u);
    EXPECT_EQ(batches[0].size(), 18u);
  }
}

TEST(stream_test, refuses_options_out_of_range) {
  auto context = make_context();
  auto with = [&](stream_loader_options x) {
    return prepare_data_loader(context, uneven, x);
  };
  EXPECT_THROW(with({.batch_size = 0}), train_error);
  EXPECT_THROW(with({.shards = 0}), train_error);
  EXPECT_THROW(with({.prefetch = 0}), train_error);
  try {
    with({.workers = -1});
    ADD_FAILURE() << "-1 workers were accepted";
  } catch (const train_error& x) {
    EXPECT_THAT(x.what(), HasSubstr("stream_loader_options::workers is -1"));
  }
}
