#include "troupe/runtime/report/report_pairing.hpp"

#include <algorithm>
#include <random>

#include <gmock/gmock.h>

#include "tests/support/start_time.hpp"
#include "troupe/runtime/report/report.hpp"

namespace troupe::internal {
namespace {

using test::t0;
using testing::AllOf;
using testing::HasSubstr;

rank_report report_of(int rank, std::uint64_t index) {
  return {
    .rank = rank, .index = index, .values = {{"rank", rank}, {"index", index}}};
}

rank_report report_of(int rank, std::uint64_t index, std::string name,
                      std::string file) {
  auto x = report_of(rank, index);
  x.part = checkpoint_part{std::move(name), {{std::move(file), 1, 2}}};
  return x;
}

TEST(report_pairing_test, RP_1_holds_a_report_until_every_rank_has_sent_one) {
  report_pairing pairing{3, 0};
  EXPECT_FALSE(*pairing.add(report_of(2, 0), t0));
  EXPECT_FALSE(*pairing.add(report_of(0, 0), t0));
  auto batch = *pairing.add(report_of(1, 0), t0);
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->index, 0u);
  ASSERT_EQ(batch->values.size(), 3u);
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(batch->values[static_cast<std::size_t>(rank)],
              (metrics{{"rank", rank}, {"index", 0}}));
  EXPECT_EQ(batch->checkpoint_name(), nullptr);
  EXPECT_EQ(pairing.next_index(), 1u);
}

TEST(report_pairing_test, one_rank_alone_waits_for_none) {
  report_pairing pairing{1, 5};
  for (std::uint64_t i = 5; i < 10; ++i) {
    auto batch = *pairing.add(report_of(0, i), t0);
    ASSERT_TRUE(batch);
    EXPECT_EQ(batch->index, i);
  }
}

TEST(report_pairing_test, counts_on_from_the_first_index_of_the_attempt) {
  report_pairing pairing{2, 7};
  EXPECT_FALSE(*pairing.add(report_of(0, 7), t0));
  EXPECT_EQ((*pairing.add(report_of(1, 7), t0))->index, 7u);
  auto old = pairing.add(report_of(0, 0), t0);
  ASSERT_FALSE(old);
  EXPECT_EQ(old.error().code, ec::protocol);
  EXPECT_THAT(old.error().message,
              HasSubstr("rank 0 sent report 0 instead of 8"));
}

TEST(report_pairing_test, refuses_ranks_that_do_not_exist) {
  report_pairing pairing{2, 0};
  EXPECT_EQ(pairing.add(report_of(2, 0), t0).error().code, ec::protocol);
  EXPECT_EQ(pairing.add(report_of(-1, 0), t0).error().code, ec::protocol);
  EXPECT_EQ(pairing.loop_ended(2).error().code, ec::protocol);
  EXPECT_EQ(pairing.reports_of(2), 0u);
}

TEST(report_pairing_test, refuses_gaps_and_repetitions) {
  report_pairing pairing{2, 0};
  EXPECT_FALSE(pairing.add(report_of(0, 1), t0));
  EXPECT_TRUE(pairing.add(report_of(0, 0), t0));
  EXPECT_FALSE(pairing.add(report_of(0, 0), t0));
  EXPECT_EQ(pairing.reports_of(0), 1u);
}

TEST(report_pairing_test, a_rank_may_run_ahead_by_a_bounded_window) {
  report_pairing pairing{2, 0};
  std::uint64_t index = 0;
  for (; index <= max_reports_ahead; ++index)
    ASSERT_TRUE(pairing.add(report_of(0, index), t0)) << index;
  auto over = pairing.add(report_of(0, index), t0);
  ASSERT_FALSE(over);
  EXPECT_THAT(over.error().message, HasSubstr("rank 0"));
}

// RP-2: any interleaving of the ranks gives the same batches.
TEST(report_pairing_test, RP_2_the_order_of_arrival_does_not_matter) {
  std::mt19937 random{7};
  for (int round = 0; round < 300; ++round) {
    auto world_size = 1 + static_cast<int>(random() % 6);
    auto reports = 1 + random() % 40;
    auto first = random() % 100;
    report_pairing pairing{world_size, first};
    std::vector<std::uint64_t> sent(static_cast<std::size_t>(world_size));
    std::vector<report_batch> batches;
    for (;;) {
      std::vector<std::size_t> able;
      auto slowest = *std::ranges::min_element(sent);
      for (std::size_t i = 0; i < sent.size(); ++i)
        if (sent[i] < reports && sent[i] - slowest < max_reports_ahead)
          able.push_back(i);
      if (able.empty())
        break;
      auto rank = able[random() % able.size()];
      auto index = first + sent[rank]++;
      auto x = report_of(static_cast<int>(rank), index);
      if ((index + rank) % 3 == 0)
        x.part = checkpoint_part{"c" + std::to_string(index),
                                 {{"r" + std::to_string(rank), 1, rank}}};
      auto batch = pairing.add(std::move(x), t0);
      ASSERT_TRUE(batch) << batch.error().message;
      if (*batch)
        batches.push_back(std::move(**batch));
    }
    ASSERT_EQ(batches.size(), reports);
    for (std::size_t i = 0; i < batches.size(); ++i) {
      auto& batch = batches[i];
      ASSERT_EQ(batch.index, first + i);
      ASSERT_EQ(batch.values.size(), sent.size());
      ASSERT_EQ(batch.parts.size(), sent.size());
      for (std::size_t rank = 0; rank < sent.size(); ++rank) {
        ASSERT_EQ(batch.values[rank],
                  (metrics{{"rank", rank}, {"index", batch.index}}));
        ASSERT_EQ(batch.parts[rank].has_value(), (batch.index + rank) % 3 == 0);
        if (batch.parts[rank]) {
          ASSERT_EQ(batch.parts[rank]->files[0].checksum, rank);
        }
      }
    }
    for (int rank = 0; rank < world_size; ++rank)
      EXPECT_TRUE(pairing.loop_ended(rank));
  }
}

TEST(report_pairing_test, keeps_which_rank_each_file_is_from) {
  report_pairing pairing{3, 0};
  ASSERT_TRUE(pairing.add(report_of(0, 0, "best", "a"), t0));
  ASSERT_TRUE(pairing.add(report_of(1, 0), t0));
  auto batch = *pairing.add(report_of(2, 0, "best", "b"), t0);
  ASSERT_TRUE(batch);
  EXPECT_EQ(*batch->checkpoint_name(), "best");
  EXPECT_EQ(batch->parts[0]->files[0].path, "a");
  EXPECT_FALSE(batch->parts[1]);
  EXPECT_EQ(batch->parts[2]->files[0].path, "b");
}

TEST(report_pairing_test, refuses_checkpoints_of_different_names) {
  report_pairing pairing{4, 0};
  ASSERT_TRUE(pairing.add(report_of(0, 0, "one", "a"), t0));
  ASSERT_TRUE(pairing.add(report_of(1, 0), t0));
  ASSERT_TRUE(pairing.add(report_of(2, 0, "two", "b"), t0));
  auto batch = pairing.add(report_of(3, 0, "two", "c"), t0);
  ASSERT_FALSE(batch);
  EXPECT_EQ(batch.error().code, ec::conflict);
  EXPECT_THAT(batch.error().message,
              HasSubstr("\"one\" by rank 0, \"two\" by ranks 2, 3"));
}

TEST(report_pairing_test, refuses_a_file_from_two_ranks_and_names_all_three) {
  report_pairing pairing{3, 0};
  ASSERT_TRUE(pairing.add(report_of(0, 0, "best", "model.pt"), t0));
  ASSERT_TRUE(pairing.add(report_of(1, 0), t0));
  auto batch = pairing.add(report_of(2, 0, "best", "model.pt"), t0);
  ASSERT_FALSE(batch);
  EXPECT_EQ(batch.error().code, ec::conflict);
  EXPECT_EQ(batch.error().message, "report 0: rank 0 and rank 2 both add "
                                   "\"model.pt\" to checkpoint \"best\"");
}

TEST(report_pairing_test, refuses_a_file_where_another_rank_has_a_folder) {
  for (auto [first, second] :
       {std::pair{"model", "model/w/1"}, std::pair{"model/w/1", "model/w"}}) {
    report_pairing pairing{2, 0};
    ASSERT_TRUE(pairing.add(report_of(0, 0, "best", first), t0));
    auto batch = pairing.add(report_of(1, 0, "best", second), t0);
    ASSERT_FALSE(batch);
    EXPECT_EQ(batch.error().code, ec::conflict);
    EXPECT_THAT(batch.error().message,
                AllOf(HasSubstr("rank 0 "), HasSubstr("rank 1 ")));
  }
  report_pairing pairing{2, 0};
  ASSERT_TRUE(pairing.add(report_of(0, 0, "best", "model/a"), t0));
  EXPECT_TRUE(pairing.add(report_of(1, 0, "best", "model/ab"), t0));
}

TEST(report_pairing_test, refuses_a_file_that_one_rank_lists_twice) {
  report_pairing pairing{1, 0};
  auto x = report_of(0, 0, "best", "model.pt");
  x.part->files.push_back(x.part->files[0]);
  auto batch = pairing.add(std::move(x), t0);
  ASSERT_FALSE(batch);
  EXPECT_THAT(batch.error().message,
              HasSubstr("rank 0 adds \"model.pt\" twice"));
}

TEST(report_pairing_test, RP_3_names_the_ranks_that_wait_for_an_ended_loop) {
  report_pairing pairing{3, 0};
  for (std::uint64_t i = 0; i < 3; ++i)
    for (int rank = 0; rank < 3; ++rank)
      ASSERT_TRUE(pairing.add(report_of(rank, i), t0));
  ASSERT_TRUE(pairing.add(report_of(0, 3), t0));
  ASSERT_TRUE(pairing.add(report_of(2, 3), t0));
  auto ended = pairing.loop_ended(1);
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, ec::rank_failed);
  EXPECT_EQ(ended.error().message, "rank 1 ended its loop after 3 reports, "
                                   "ranks 0, 2 wait with report 3");
}

TEST(report_pairing_test,
     RP_3_names_the_ended_rank_when_a_report_arrives_later) {
  report_pairing pairing{2, 0};
  ASSERT_TRUE(pairing.loop_ended(1));
  auto late = pairing.add(report_of(0, 0), t0);
  ASSERT_FALSE(late);
  EXPECT_EQ(
    late.error().message,
    "rank 1 ended its loop after 0 reports, rank 0 waits with report 0");
}

TEST(report_pairing_test, a_rank_that_ran_ahead_may_end_first) {
  report_pairing pairing{2, 0};
  ASSERT_TRUE(pairing.add(report_of(0, 0), t0));
  ASSERT_TRUE(pairing.add(report_of(0, 1), t0));
  EXPECT_TRUE(pairing.loop_ended(0));
  EXPECT_TRUE((*pairing.add(report_of(1, 0), t0)).has_value());
  EXPECT_TRUE((*pairing.add(report_of(1, 1), t0)).has_value());
  EXPECT_TRUE(pairing.loop_ended(1));
}

TEST(report_pairing_test, refuses_a_report_after_the_loop_ended) {
  report_pairing pairing{1, 0};
  ASSERT_TRUE(pairing.loop_ended(0));
  auto late = pairing.add(report_of(0, 0), t0);
  ASSERT_FALSE(late);
  EXPECT_THAT(late.error().message, HasSubstr("after its loop ended"));
}

} // namespace
} // namespace troupe::internal
