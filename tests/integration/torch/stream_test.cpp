// Streams that several rank processes divide, and that continue after failures.

#include <csignal>
#include <map>
#include <sstream>

#include <gmock/gmock.h>

#include "tests/support/temporary_folder.hpp"
#include "troupe/trainers/torch/data/stream_loader.hpp"
#include "troupe/trainers/torch/torch_trainer.hpp"

namespace troupe::internal::test {

using testing::AllOf;
using testing::HasSubstr;

namespace {

/// Shard s of a stream has `base + s * growth` samples: 1000 * s + i.
struct sized_stream {
  struct reader {
    std::optional<std::int64_t> next() {
      if (at == broken_at)
        throw std::runtime_error{"the line is cut"};
      return at < length ? std::optional{first + at++} : std::nullopt;
    }
    std::int64_t first;
    std::int64_t length;
    std::int64_t broken_at;
    std::int64_t at = 0;
  };

  reader open(const stream_shard& x) const {
    return {1000 * x.index, base + x.index * growth,
            x.index == broken ? 1 : -1};
  }

  std::int64_t base;
  std::int64_t growth;
  int broken = -1;
};

struct config {
  std::int64_t base = 8;
  std::int64_t growth = 0;
  int broken = -1;
  int fails_at = -1;  ///< Batches after which the last rank ends, once.
  bool kills = false; ///< By SIGKILL; else by an exception, each time.
  std::string tail = "pad";
  int workers = 0;

  TROUPE_FIELDS(base, growth, broken, fails_at, kills, tail, workers)
};

/// Reports the samples of each batch, and saves the place.
void loop(train_context& context, const config& cfg) {
  auto loader = prepare_data_loader(
    context, sized_stream{cfg.base, cfg.growth, cfg.broken},
    {.batch_size = 4,
     .shards = 12,
     .tail = cfg.tail == "drop_last" ? tail::drop_last : tail::pad,
     .workers = cfg.workers});
  int step = 0;
  train_state state{{"loader", loader}, {"step", step}};
  context.resume(state);
  for (auto& batch : loader) {
    std::ostringstream seen;
    for (std::int64_t i = 0; i < batch.size(0); ++i)
      seen << batch[i].item<std::int64_t>() << ' ';
    if (step == cfg.fails_at && context.rank() + 1 == context.world_size()) {
      if (!cfg.kills)
        throw std::runtime_error{"planned"};
      if (context.attempt() == 0)
        std::raise(SIGKILL);
    }
    ++step;
    context.report({{"seen", seen.str()}}, state);
  }
}

/// The samples of each global batch, sorted.
using global_batches = std::vector<std::vector<int>>;

class stream_run_test : public testing::Test {
protected:
  result run(const config& cfg, int ranks, int max_failures = 0,
             const std::string& name = "run") {
    torch_options x;
    x.scaling = {.num_workers = ranks};
    x.run.name = name;
    x.run.storage_path = storage_.path();
    x.run.quiet = true;
    x.run.failure.max_failures = max_failures;
    return torch_trainer{loop, cfg, x}.fit();
  }

  static global_batches batches(const result& x) {
    global_batches all;
    auto rows = x.metrics_history();
    EXPECT_TRUE(rows);
    for (auto& row : *rows) {
      auto& batch = all.emplace_back();
      for (auto& values : row.values) {
        std::istringstream text{to_string(values.at("seen"))};
        for (int sample; text >> sample;)
          batch.push_back(sample);
      }
      std::ranges::sort(batch);
    }
    return all;
  }

  temporary_folder storage_;
};

/// How often each sample is in *x*.
std::map<int, int> counts(const global_batches& x) {
  std::map<int, int> result;
  for (auto& batch : x)
    for (auto sample : batch)
      ++result[sample];
  return result;
}

} // namespace

TEST_F(stream_run_test, a_killed_rank_loses_no_sample_and_sees_none_twice) {
  auto whole = run({.fails_at = 5, .kills = true, .workers = 2}, 2, 1);
  ASSERT_FALSE(whole.error) << whole.error->message;
  auto all = batches(whole);
  EXPECT_EQ(all.size(), 12u); // 96 samples in batches of 8
  auto seen = counts(all);
  EXPECT_EQ(seen.size(), 96u);
  for (auto& [sample, times] : seen)
    EXPECT_EQ(times, 1) << sample;
}

TEST_F(stream_run_test, another_number_of_ranks_continues_with_the_same_order) {
  // 2 ranks, then 3, then 1: each divides the shards.
  ASSERT_TRUE(run({.fails_at = 3}, 2).error);
  ASSERT_TRUE(run({.fails_at = 5}, 3).error);
  auto last = run({}, 1);
  ASSERT_FALSE(last.error) << last.error->message;
  auto all = batches(last);
  ASSERT_EQ(all.size(), 3u + 2 + 12);
  // In the order of the stream, round by round of its 12 shards.
  std::vector<int> flat;
  int expected = 0;
  for (auto& batch : all) {
    std::vector<int> wanted;
    for (std::size_t i = 0; i < batch.size(); ++i, ++expected)
      wanted.push_back(1000 * (expected % 12) + expected / 12);
    std::ranges::sort(wanted);
    EXPECT_EQ(batch, wanted);
  }
  EXPECT_EQ(expected, 96);
}

TEST_F(stream_run_test, ranks_with_fewer_samples_repeat_some_until_all_end) {
  // 0, 3, 6, ... 33 samples: rank 0 has 90, rank 1 has 108.
  auto done = run({.base = 0, .growth = 3, .workers = 2}, 2);
  ASSERT_FALSE(done.error) << done.error->message;
  auto all = batches(done);
  EXPECT_EQ(all.size(), 27u); // those of rank 1
  auto seen = counts(all);
  EXPECT_EQ(seen.size(), 198u);
  std::erase_if(seen, [](auto& x) { return x.first / 1000 % 2 == 0; });
  for (auto& [sample, times] : seen)
    EXPECT_EQ(times, 1) << sample;
}

TEST_F(stream_run_test, ranks_repeat_the_same_samples_after_a_restart) {
  auto whole = run({.base = 0, .growth = 3}, 2);
  ASSERT_FALSE(whole.error) << whole.error->message;
  // Rank 0 has half a batch left, or none.
  for (int step : {22, 25}) {
    auto name = "killed_" + std::to_string(step);
    auto killed = run({.base = 0, .growth = 3, .fails_at = step, .kills = true},
                      2, 1, name);
    ASSERT_FALSE(killed.error) << killed.error->message;
    EXPECT_EQ(killed.attempts, 2u);
    EXPECT_EQ(batches(killed), batches(whole)) << step;
  }
}

TEST_F(stream_run_test, ranks_whose_new_shards_have_ended_repeat_some_of_them) {
  // What is left, 8 samples of shards 9 and 11, is of ranks 0 and 2 of three.
  ASSERT_TRUE(run({.base = 0, .growth = 3, .fails_at = 25}, 2).error);
  auto last = run({.base = 0, .growth = 3}, 3);
  ASSERT_FALSE(last.error) << last.error->message;
  EXPECT_EQ(counts(batches(last)).size(), 198u);
}

TEST_F(stream_run_test, ranks_end_together_before_the_first_incomplete_batch) {
  auto done = run({.base = 0, .growth = 3, .tail = "drop_last"}, 2);
  ASSERT_FALSE(done.error) << done.error->message;
  auto all = batches(done);
  EXPECT_EQ(all.size(), 22u); // whole batches of rank 0
  for (auto& batch : all)
    EXPECT_EQ(batch.size(), 8u);
}

TEST_F(stream_run_test, a_rank_without_any_sample_cannot_repeat_one) {
  auto failed = run({.base = -10, .growth = 1}, 3); // shard 11 has one sample
  ASSERT_TRUE(failed.error);
  EXPECT_THAT(failed.error->message, HasSubstr("found no sample"));
}

TEST_F(stream_run_test, an_exception_of_a_stream_names_rank_and_sample) {
  auto failed = run({.broken = 4}, 3);
  ASSERT_TRUE(failed.error);
  EXPECT_THAT(failed.error->message,
              AllOf(HasSubstr("rank 1"), HasSubstr("shard 4 of 12"),
                    HasSubstr("sample 1"), HasSubstr("the line is cut")));
}

} // namespace troupe::internal::test
