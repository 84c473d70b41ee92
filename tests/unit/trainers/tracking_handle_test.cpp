#include "troupe/trainers/tracking_handle.hpp"

#include <array>
#include <fstream>
#include <limits>
#include <memory>

#include <gmock/gmock.h>

#include "tests/support/child.hpp"
#include "tests/support/folder_elsewhere.hpp"
#include "tests/support/memory_link.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/storage/held_folder.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe::internal::test {
namespace {

using testing::IsEmpty;

/// Keeps what a rank logs.
class recorded_link : public memory_link {
public:
  using memory_link::memory_link;

  expected<void> log(loop_event x) override {
    events.push_back(std::move(x));
    return {};
  }

  std::vector<loop_event> events;
};

class tracking_handle_test : public testing::Test {
protected:
  train_context context_of(int rank) {
    rank_facts facts;
    facts.run_path = run.path().string();
    facts.rank = rank;
    facts.world_size = 2;
    return {facts, link, std::nullopt};
  }

  /// The only event of *kind* but that the tracker began and ended.
  const metrics& fields_of(const std::string& kind) {
    static const metrics none;
    for (auto& x : link->events)
      if (x.kind == kind)
        return x.fields;
    ADD_FAILURE() << "no event " << kind;
    return none;
  }

  temporary_folder run;
  temporary_folder elsewhere;
  memory_store store;
  std::shared_ptr<recorded_link> link = std::make_shared<recorded_link>(store);
};

TEST_F(tracking_handle_test, no_loop_notes_what_the_run_itself_does) {
  auto context = context_of(0);
  for (auto kind :
       {"run_ended", "attempt_begun", "attempt_left", "ranks_failed",
        "driver_lost", "preempted", "stop_decided", "state", "event_refused",
        "callback_failed", "world_resized", "host_joined", "host_lost",
        "checkpoint_rotten", "journal_damaged"})
    EXPECT_THROW(rank_access{context}.log({kind, {}}), train_error) << kind;
  EXPECT_THAT(link->events, IsEmpty());
  EXPECT_THROW(rank_access{context}.log({std::string(300, 'k'), {}}),
               train_error);
  rank_access{context}.log({"mine", {}});
  EXPECT_EQ(link->events.size(), 1u);
}

TEST_F(tracking_handle_test, writes_no_file_of_a_process_that_the_loop_forked) {
  auto context = context_of(0);
  auto handle = start_tracking(context);
  std::ofstream{(elsewhere / "a.txt").string()} << "a";
  std::vector<std::uint8_t> pixels(3);
  auto status = run_in_child([&] {
    auto refused = 0;
    try {
      handle.log_image("x", {pixels, 1, 1, 3}, 0);
    } catch (const train_error&) {
      ++refused;
    }
    try {
      handle.log_artifact(elsewhere / "a.txt");
    } catch (const train_error&) {
      ++refused;
    }
    ::_exit(refused);
  });
  EXPECT_EQ(WEXITSTATUS(status), 2);
  EXPECT_FALSE(fs::exists(run / "media"));
  EXPECT_FALSE(fs::exists(run / "artifacts"));
}

TEST_F(tracking_handle_test, counts_values_in_buckets_of_equal_width) {
  auto context = context_of(0);
  auto tracker = start_tracking(context);
  std::array values{0.0,
                    0.5,
                    1.0,
                    3.5,
                    4.0,
                    std::numeric_limits<double>::quiet_NaN(),
                    std::numeric_limits<double>::infinity()};
  tracker.log_histogram("weights", values, 7, 4);
  auto& fields = fields_of("tracker_histogram");
  EXPECT_EQ(fields.at("name"), metric_value{"weights"});
  EXPECT_EQ(fields.at("step"), metric_value{7});
  EXPECT_EQ(fields.number("min"), 0);
  EXPECT_EQ(fields.number("max"), 4);
  EXPECT_EQ(fields.number("sum"), 9);
  EXPECT_EQ(fields.number("sum_squares"), 29.5);
  EXPECT_EQ(fields.at("limits"), metric_value{"1 2 3 4"});
  EXPECT_EQ(fields.at("counts"), metric_value{"3 0 0 2"});
}

TEST_F(tracking_handle_test, copies_a_file_from_elsewhere_into_the_run) {
  write_bytes(elsewhere / "notes.txt", "notes");
  auto context = context_of(0);
  auto tracker = start_tracking(context);
  tracker.log_artifact(elsewhere / "notes.txt", "docs/notes.txt");
  EXPECT_EQ(bytes_of(run / "artifacts/docs/notes.txt"), "notes");
  auto& fields = fields_of("tracker_artifact");
  EXPECT_EQ(fields.at("name"), metric_value{"docs/notes.txt"});
  EXPECT_EQ(fields.at("file"), metric_value{"artifacts/docs/notes.txt"});
}

TEST_F(tracking_handle_test, copies_files_of_another_file_system) {
  folder_elsewhere other;
  write_bytes(other / "notes.txt", "notes");
  fs::create_directories(other / "all/sub");
  write_bytes(other / "all/sub/more.txt", "more");
  auto context = context_of(0);
  auto tracker = start_tracking(context);
  for (auto i = 0; i < 2; ++i) { // The second replaces the first.
    tracker.log_artifact(other / "notes.txt");
    tracker.log_artifact(other / "all");
    EXPECT_EQ(bytes_of(run / "artifacts/notes.txt"), "notes");
    EXPECT_EQ(bytes_of(run / "artifacts/all/sub/more.txt"), "more");
  }
}

TEST_F(tracking_handle_test, leaves_a_file_of_the_run_where_it_is) {
  write_bytes(run / "own.txt", "own");
  auto context = context_of(0);
  auto tracker = start_tracking(context);
  tracker.log_artifact(run / "own.txt");
  EXPECT_EQ(fields_of("tracker_artifact").at("file"), metric_value{"own.txt"});
  EXPECT_FALSE(fs::exists(run / "artifacts"));
}

TEST_F(tracking_handle_test, knows_a_file_of_the_run_behind_a_link) {
  write_bytes(run / "own.txt", "own");
  fs::create_directory_symlink(run.path(), elsewhere / "link");
  rank_facts facts;
  facts.run_path = (elsewhere / "link").string();
  facts.world_size = 2;
  train_context context{facts, link, std::nullopt};
  auto tracker = start_tracking(context);
  for (auto& path : {run / "own.txt", elsewhere / "link/own.txt"}) {
    link->events.clear();
    tracker.log_artifact(path);
    EXPECT_EQ(fields_of("tracker_artifact").at("file"),
              metric_value{"own.txt"});
  }
  EXPECT_FALSE(fs::exists(run / "artifacts"));
}

TEST_F(tracking_handle_test, copies_what_a_checkpoint_has) {
  for (std::string folder :
       {"checkpoints/.staging-0-rank_0", "checkpoints/c"}) {
    fs::create_directories(run / folder);
    write_bytes(run / folder / "model.bin", "model");
    auto context = context_of(0);
    auto tracker = start_tracking(context);
    link->events.clear();
    tracker.log_artifact(run / folder / "model.bin");
    EXPECT_EQ(fields_of("tracker_artifact").at("file"),
              metric_value{"artifacts/model.bin"});
    fs::remove_all(run / folder); // It is renamed, or evicted.
    EXPECT_EQ(bytes_of(run / "artifacts/model.bin"), "model");
  }
}

TEST_F(tracking_handle_test, refuses_the_runs_folder_as_an_artifact) {
  auto context = context_of(0);
  auto tracker = start_tracking(context);
  link->events.clear();
  EXPECT_THROW(tracker.log_artifact(context.run_path()), train_error);
  EXPECT_THAT(link->events, IsEmpty());
}

TEST_F(tracking_handle_test, names_only_artifacts_that_survive_a_power_cut) {
  write_bytes(elsewhere / "notes.txt", "notes");
  fs::create_directories(elsewhere / "all/sub");
  write_bytes(elsewhere / "all/sub/more.txt", "more");
  auto context = context_of(0);
  auto tracker = start_tracking(context);
  // A file or its folder; `artifacts`, the run's folder.
  for (auto& [path, syncs] : {std::pair{elsewhere / "notes.txt", 3},
                              std::pair{elsewhere / "all", 5}}) {
    for (auto i = 1; i <= syncs; ++i) {
      link->events.clear();
      ASSERT_TRUE(arm_failpoint(concat("storage.sync_file:", i, "=eio")));
      EXPECT_THROW(tracker.log_artifact(path), train_error) << path << ' ' << i;
      ASSERT_TRUE(arm_failpoint(""));
      EXPECT_THAT(link->events, IsEmpty());
    }
    tracker.log_artifact(path);
    EXPECT_EQ(link->events.size(), 1u);
  }
}

TEST_F(tracking_handle_test, creates_nothing_at_the_runs_former_path) {
  const std::array<std::uint8_t, 3> pixels{};
  const image_view image{pixels, 1, 1};
  write_bytes(elsewhere / "notes.txt", "notes");
  auto first = context_of(0);
  auto facts = rank_access{first}.facts();
  facts.run_path = (run / "r").string();
  fs::create_directory(run / "r");
  facts.run_inode = held_folder::open(run / "r").value().inode();
  train_context context{facts, link, std::nullopt};
  auto tracker = start_tracking(context);
  fs::rename(run / "r", run / "moved");
  for (auto replaced : {false, true}) {
    if (replaced)
      fs::create_directory(run / "r");
    EXPECT_THROW(tracker.log_image("x", image, 0), train_error);
    EXPECT_THROW(tracker.log_artifact(elsewhere / "notes.txt"), train_error);
    EXPECT_EQ(fs::exists(run / "r"), replaced);
  }
  EXPECT_TRUE(fs::is_empty(run / "r"));
}

TEST_F(tracking_handle_test,
       refuses_an_artifact_that_is_not_there_or_leads_out) {
  write_bytes(elsewhere / "notes.txt", "notes");
  auto context = context_of(0);
  auto tracker = start_tracking(context);
  EXPECT_THROW(tracker.log_artifact(elsewhere / "gone"), train_error);
  EXPECT_THROW(tracker.log_artifact(elsewhere / "notes.txt", "../../up.txt"),
               train_error);
}

TEST_F(tracking_handle_test, two_handles_write_no_image_over_each_others) {
  auto context = context_of(0);
  std::array<std::uint8_t, 2> black{0, 0}, white{255, 255};
  {
    auto first = start_tracking(context);
    auto second = start_tracking(context);
    first.log_image("sample", {black, 2, 1, 1}, 3);
    second.log_image("sample", {white, 2, 1, 1}, 3);
  }
  std::vector<std::string> images;
  for (auto& x : link->events)
    if (x.kind == "tracker_image")
      images.push_back(bytes_of(run / to_string(x.fields.at("file"))));
  ASSERT_EQ(images.size(), 2u);
  EXPECT_FALSE(images[0].empty());
  EXPECT_NE(images[0], images[1]);
}

TEST_F(tracking_handle_test, does_nothing_on_other_ranks) {
  auto context = context_of(1);
  auto tracker = start_tracking(context);
  std::array values{1.0};
  tracker.log_histogram("weights", values, 0);
  tracker.log_artifact(elsewhere / "gone");
  EXPECT_FALSE(tracker.active());
  EXPECT_THAT(link->events, IsEmpty());
}

} // namespace
} // namespace troupe::internal::test
