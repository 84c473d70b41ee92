#include "troupe/runtime/store/saved_run.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "tests/support/saved_state.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/checkpoint/manifest.hpp"
#include "troupe/runtime/storage/checksum.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;

namespace {

held_folder held(const temporary_folder& run) {
  return held_folder::open(run.path()).value();
}

saved_run example(const fs::path& run) {
  saved_run x;
  x.status = run_status_kind::errored;
  x.next_attempt = 3;
  x.next_report = 17;
  x.retention = {2, "val/loss", score_order::min};
  x.error = make_run_error(
    {{1, {rank_failure::kind_type::exit_code, 3, "no \xff UTF-8", 42, "h"}}},
    run);
  x.checkpoints.push_back(
    {checkpoint::from_directory(run / "checkpoints" / "c1"),
     {{"val/loss", std::numeric_limits<double>::infinity()}, {"n", 1}},
     4,
     1});
  x.doomed = {{"c0", 3, 1}};
  x.rotten = {".rotten-c", ".rotten-2-c"};
  x.lost_after_ms = 20'000;
  x.journal_unsynced = true;
  return x;
}

} // namespace

TEST(saved_run_test, reads_back_as_it_was) {
  temporary_folder run;
  EXPECT_FALSE(load_run(run.path()).value());
  auto x = example(run.path());
  ASSERT_TRUE(save_run(x, run.path()));
  auto y = load_run(run.path()).value().value();
  EXPECT_EQ(y.status, x.status);
  EXPECT_EQ(y.next_attempt, x.next_attempt);
  EXPECT_EQ(y.next_report, x.next_report);
  EXPECT_EQ(y.retention.num_to_keep, 2);
  EXPECT_EQ(y.retention.checkpoint_score_attribute, "val/loss");
  EXPECT_EQ(y.retention.checkpoint_score_order, score_order::min);
  EXPECT_EQ(y.error, x.error);
  EXPECT_EQ(y.checkpoints, x.checkpoints);
  EXPECT_EQ(y.doomed, x.doomed);
  EXPECT_EQ(y.rotten, x.rotten);
  EXPECT_EQ(y.lost_after_ms, x.lost_after_ms);
  EXPECT_TRUE(y.journal_unsynced);
}

TEST(saved_run_test, is_read_through_a_link_to_its_run) {
  temporary_folder run, elsewhere;
  ASSERT_TRUE(save_run(example(run.path()), run.path()));
  fs::create_directory_symlink(run.path(), elsewhere / "link");
  auto x = load_run(elsewhere / "link");
  ASSERT_TRUE(x) << x.error().message;
  EXPECT_EQ((*x)->checkpoints.front().data.path(),
            elsewhere / "link" / "checkpoints" / "c1");
}

TEST(saved_run_test, has_up_to_64_metrics_and_texts_of_up_to_256_bytes) {
  auto has_metrics = [](const metrics& values) {
    saved_run x;
    x.checkpoints.push_back(
      {checkpoint::from_directory("/r/checkpoints/c"), values, 0, 0});
    return to_json(x).find("\"metrics\":null") == std::string::npos;
  };
  metrics many;
  for (int i = 0; i < 64; ++i)
    many["norm_" + std::to_string(i)] = i;
  EXPECT_TRUE(has_metrics({}));
  EXPECT_TRUE(has_metrics(many));
  many["one more"] = 1;
  EXPECT_FALSE(has_metrics(many));
  EXPECT_TRUE(has_metrics({{"text", std::string(256, 'x')}, {"y", 1}}));
  EXPECT_FALSE(has_metrics({{"text", std::string(257, 'x')}, {"y", 1}}));
}

TEST(saved_run_test, leaves_long_metrics_to_the_manifests) {
  temporary_folder run;
  auto folder = run / "checkpoints" / "c1";
  fs::create_directories(folder);
  metrics many;
  for (int i = 0; i < 100; ++i)
    many["norm_" + std::to_string(i)] = 0.5 * i;
  saved_run x;
  x.checkpoints.push_back({checkpoint::from_directory(folder), many, 4, 1});
  write_bytes(folder / manifest_file_name,
              to_json(manifest{
                .name = "c1", .attempt = 1, .index = 4, .values = {many}}));
  ASSERT_TRUE(save_run(x, run.path()));
  EXPECT_EQ(to_json(x).find("norm_"), std::string::npos);
  EXPECT_EQ(load_run(run.path()).value()->checkpoints, x.checkpoints);
  auto folder_of_run = held(run);
  fs::rename(run.path(), run.path().string() + ".moved");
  EXPECT_EQ(saved_run_from_json(to_json(x), folder_of_run)->checkpoints,
            x.checkpoints);
  fs::rename(run.path().string() + ".moved", run.path());
  for (auto text :
       {to_json(manifest{.attempt = 2, .index = 9, .values = {many}}),
        std::string{"damaged"}}) {
    write_bytes(folder / manifest_file_name, text);
    auto found = load_run(run.path());
    ASSERT_TRUE(found) << text;
    EXPECT_TRUE((*found)->checkpoints[0].values.empty()) << text;
  }
  fs::remove_all(run / "checkpoints");
  EXPECT_TRUE(load_run(run.path()).value()->checkpoints[0].values.empty());
}

// A page of many checkpoints shows the metrics of some.
TEST(saved_run_test, reads_long_metrics_of_the_newest_and_of_those_with_ranks) {
  temporary_folder run;
  metrics many;
  for (int i = 0; i < 100; ++i)
    many["norm_" + std::to_string(i)] = 0.5 * i;
  saved_run x;
  for (std::uint64_t i = 0; i < 4; ++i) {
    auto name = "c" + std::to_string(i);
    auto folder = run / "checkpoints" / name;
    fs::create_directories(folder);
    x.checkpoints.push_back({checkpoint::from_directory(folder),
                             i == 0 ? metrics{{"norm_0", 1}} : many, i, 0});
    write_bytes(folder / manifest_file_name,
                to_json(manifest{.name = name, .index = i, .values = {many}}));
  }
  auto has_values = [&] {
    std::vector<bool> result;
    auto state = load_run(run.path(), 2).value().value();
    for (auto& kept : state.checkpoints)
      result.push_back(!kept.values.empty());
    return result;
  };
  ASSERT_TRUE(save_run(x, run.path()));
  EXPECT_EQ(has_values(), (std::vector{true, false, true, true}));
  x.retention.checkpoint_score_attribute = "norm_1";
  ASSERT_TRUE(save_run(x, run.path()));
  EXPECT_EQ(has_values(), (std::vector{true, true, true, true}));
}

TEST(saved_run_test, notices_every_flipped_byte) {
  temporary_folder folder;
  auto run = held(folder);
  auto text = to_json(example(run.path()));
  ASSERT_TRUE(saved_run_from_json(text, run));
  for (std::size_t i = 0; i < text.size(); ++i) {
    auto damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    auto x = saved_run_from_json(damaged, run);
    ASSERT_FALSE(x) << i;
    EXPECT_EQ(x.error().code, ec::corrupt);
    EXPECT_NE(x.error().message.find((folder / "state.json").string()),
              std::string::npos);
  }
}

TEST(saved_run_test, refuses_a_format_of_the_future_as_unsupported) {
  temporary_folder run;
  for (auto format : {"0", "3"}) {
    auto text = R"({"format":)" + std::string{format};
    append_sum(text);
    auto x = saved_run_from_json(text, held(run));
    ASSERT_FALSE(x);
    EXPECT_EQ(x.error().code, ec::unsupported);
  }
}

TEST(saved_run_test, refuses_codes_of_the_future_as_unsupported) {
  temporary_folder folder;
  auto run = held(folder);
  saved_run code, kind;
  code.error = run_error{static_cast<ec>(200), "", {}};
  kind.error =
    run_error{ec::rank_failed,
              "",
              {{0, {static_cast<rank_failure::kind_type>(200), 0, "", 0, ""}}}};
  for (auto& x : {code, kind})
    EXPECT_EQ(saved_run_from_json(to_json(x), run).error().code,
              ec::unsupported);
}

TEST(saved_run_test, reads_the_first_format) {
  temporary_folder folder;
  auto run = held(folder);
  auto x = example(run.path());
  auto text = to_json(x);
  text.replace(text.find("2"), 1, "1");
  text.resize(text.rfind(",\"sum\""));
  append_sum(text);
  auto old = saved_run_from_json(text, run);
  ASSERT_TRUE(old) << old.error().message;
  EXPECT_EQ(to_json(*old), to_json(x));
}

TEST(saved_run_test, refuses_checkpoint_names_that_leave_the_run) {
  temporary_folder folder;
  auto run = held(folder);
  saved_run x;
  x.checkpoints.push_back({checkpoint::from_directory("/x/.."), {}, 0, 0});
  EXPECT_EQ(saved_run_from_json(to_json(x), run).error().code, ec::corrupt);
  saved_run y;
  y.doomed = {{"../../home", 0, 0}};
  EXPECT_EQ(saved_run_from_json(to_json(y), run).error().code, ec::corrupt);
}
