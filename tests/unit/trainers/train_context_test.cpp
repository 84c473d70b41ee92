#include "troupe/trainers/train_context.hpp"

#include <fstream>
#include <thread>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>

#include "tests/support/child.hpp"
#include "tests/support/memory_link.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe::internal::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Keeps what a context sends, and answers as the test says.
class scripted_link : public memory_link {
public:
  using memory_link::memory_link;

  expected<void> report(rank_report x, bool wait) override {
    sent.emplace_back(x.index, wait);
    return answer;
  }
  expected<void> log(loop_event x) override {
    logged.push_back(x.kind);
    return {};
  }
  expected<void> barrier() override { return answer; }
  expected<std::string> broadcast(expected<std::string> bytes) override {
    offered = bytes;
    return bytes;
  }
  expected<bool> has_checkpoint(const std::string& name) override {
    asked.push_back(name);
    return true;
  }

  using index_and_wait = std::pair<std::uint64_t, bool>;

  std::optional<troupe::stop_info> stop_info() const override { return stop; }

  std::vector<index_and_wait> sent;
  std::vector<std::string> logged;
  std::vector<std::string> asked; ///< Names of checkpoints.
  expected<void> answer;
  expected<std::string> offered;
  std::optional<troupe::stop_info> stop;
};

class train_context_test : public testing::Test {
protected:
  void SetUp() override { fs::create_directory(run / "checkpoints"); }

  train_context make(std::uint64_t first_report = 0,
                     std::optional<checkpoint> resume = std::nullopt) {
    rank_facts facts;
    facts.run_path = run.path().string();
    facts.world_size = 2;
    facts.first_report = first_report;
    return {facts, link, std::move(resume)};
  }

  /// The reason that *call* throws.
  static error reason_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const train_error& x) {
      return x.reason();
    }
    return {};
  }

  /// A folder with one file.
  fs::path new_files(const std::string& name) {
    fs::create_directory(elsewhere / name);
    std::ofstream{(elsewhere / name / "a.txt").string()} << "a";
    return elsewhere / name;
  }

  using sent = scripted_link::index_and_wait;

  temporary_folder run;
  temporary_folder elsewhere;
  memory_store store;
  std::shared_ptr<scripted_link> link = std::make_shared<scripted_link>(store);
};

} // namespace

TEST_F(train_context_test, counts_reports_from_the_first_of_the_attempt) {
  auto context = make(7);
  context.report({{"loss", 1.0}});
  context.report({{"loss", 0.5}}, {.barrier = false});
  EXPECT_THAT(link->sent, ElementsAre(sent{7, true}, sent{8, false}));
}

TEST_F(train_context_test, a_report_refused_before_it_is_sent_takes_no_index) {
  auto context = make();
  auto files = checkpoint::from_directory(new_files("a"));
  auto taken =
    reason_of([&] { context.report({}, files, {.checkpoint_name = "mine"}); });
  EXPECT_EQ(taken.code, ec::conflict);
  EXPECT_THAT(link->asked, ElementsAre("mine"));
  EXPECT_EQ(reason_of([&] {
              context.report({}, files, {.checkpoint_name = "a/b"});
            }).code,
            ec::invalid_argument);
  EXPECT_THAT(link->sent, IsEmpty());
  context.report({});
  EXPECT_THAT(link->sent, ElementsAre(sent{0, true}));
}

TEST_F(train_context_test, files_are_moved_only_after_their_report_is_stored) {
  auto context = make();
  auto path = new_files("a");
  auto files = checkpoint::from_directory(path);
  link->answer = failure(ec::storage, "the disk is full");
  // Waits even without barrier: there is no other copy until the commit.
  EXPECT_EQ(reason_of([&] {
              context.report({}, files, {.move_files = true, .barrier = false});
            }).code,
            ec::storage);
  EXPECT_TRUE(fs::exists(path / "a.txt"));
  EXPECT_FALSE(context.checkpoint());
  link->answer = {};
  context.report({}, files, {.move_files = true, .barrier = false});
  EXPECT_FALSE(fs::exists(path / "a.txt"));
  EXPECT_EQ(context.checkpoint()->name(), "checkpoint_000001");
  EXPECT_THAT(link->sent, ElementsAre(sent{0, true}, sent{1, true}));
}

TEST_F(train_context_test, rank_0_alone_writes_the_files_of_a_short_report) {
  auto context = make();
  auto calls = 0;
  auto write = [&](staged_checkpoint& files) {
    ++calls;
    fs::ofstream{files.path() / "a.txt"} << "a";
  };
  context.report({{"x", 1}}, write);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(context.checkpoint()->name(), "checkpoint_000000");
  rank_facts facts;
  facts.run_path = run.path().string();
  facts.rank = 1;
  facts.world_size = 2;
  train_context other{facts, link, std::nullopt};
  other.report({{"x", 1}}, write, {.barrier = false});
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(other.checkpoint());
  EXPECT_THAT(link->sent, ElementsAre(sent{0, true}, sent{0, false}));
}

TEST_F(train_context_test, a_writer_that_throws_reports_nothing) {
  auto context = make();
  EXPECT_THROW(context.report({},
                              [](staged_checkpoint& files) {
                                fs::ofstream{files.path() / "half.txt"} << "a";
                                throw std::runtime_error{"no space"};
                              }),
               std::runtime_error);
  EXPECT_THAT(link->sent, IsEmpty());
  EXPECT_TRUE(fs::is_empty(run / "checkpoints"));
  context.report({}, std::optional<staged_checkpoint>{});
  EXPECT_THAT(link->sent, ElementsAre(sent{0, true}));
}

TEST_F(train_context_test, resumes_all_objects_of_a_state) {
  int epoch = 3;
  train_state state{{"epoch", epoch}};
  auto context = make();
  EXPECT_FALSE(context.resume(state));
  EXPECT_EQ(epoch, 3);
  context.report({}, state);
  auto saved = context.checkpoint();
  ASSERT_TRUE(saved);
  auto files = context.new_checkpoint();
  state.save(files);
  rank_access{context}.end();
  epoch = 0;
  auto next = make(1, checkpoint::from_directory(files.path()));
  EXPECT_TRUE(next.resume(state));
  EXPECT_EQ(epoch, 3);
  next.report({});
  EXPECT_THAT(link->logged, IsEmpty()); // the checkpoint was read
}

TEST_F(train_context_test, warns_once_of_a_checkpoint_that_is_not_read) {
  auto resume = checkpoint::from_directory(new_files("old"));
  {
    auto context = make(3, resume);
    context.report({});
    context.report({});
    EXPECT_EQ(link->logged, std::vector<std::string>{warning_kind});
  }
  link->logged.clear();
  auto reader = make(3, resume);
  EXPECT_EQ(reader.checkpoint()->name(), "old");
  reader.report({});
  EXPECT_THAT(link->logged, IsEmpty());
}

TEST_F(train_context_test, a_check_before_reports_holds_while_it_is_kept) {
  auto context = make();
  auto check = rank_access{context}.before_report([] {
    throw train_error{{ec::rank_failed, "the weights differ"}};
  });
  EXPECT_THROW(context.report({}), train_error);
  EXPECT_THROW(context.new_checkpoint(), train_error);
  EXPECT_THAT(link->sent, IsEmpty());
  check.reset();
  context.report({});
  EXPECT_EQ(link->sent.size(), 1u);
}

TEST_F(train_context_test, a_hook_that_throws_fails_the_rank_by_name) {
  auto context = make();
  rank_access{context}.on_report(
    [](train_context& x, const metrics&, const std::optional<checkpoint>&) {
      x.report({});
    });
  EXPECT_THAT(reason_of([&] { context.report({}); }).message,
              HasSubstr("the hook on_report threw: rank 0: report() was "
                        "called by on_report"));
  EXPECT_EQ(rank_access{context}.hook_failure().code, ec::invalid_argument);
  EXPECT_EQ(link->sent.size(), 1u);
}

TEST_F(train_context_test, a_stop_is_not_a_failure) {
  auto context = make();
  link->answer = failure(ec::stopped, "the run was asked to stop");
  EXPECT_THROW(context.barrier(), run_stopped);
  rank_access{context}.on_report(
    [](train_context& x, const metrics&, const std::optional<checkpoint>&) {
      x.barrier();
    });
  EXPECT_THROW(context.report({}), run_stopped);
  EXPECT_FALSE(rank_access{context}.hook_failure());
}

TEST_F(train_context_test, knows_whether_a_loop_left_by_itself) {
  using kind = stop_info::kind_type;
  auto context = make();
  link->answer = failure(ec::stopped, "the run was asked to stop");
  EXPECT_THROW(context.report({}), run_stopped);
  for (auto why : {kind::preempted, kind::stopped}) {
    link->stop = {why, "the queue is empty", {}};
    EXPECT_THROW(context.report({}), run_stopped);
  }
  EXPECT_FALSE(rank_access{context}.leaves_by_itself());
  EXPECT_EQ(link->sent.size(), 3u);
  link->stop = {kind::finished, "it was good enough", {}};
  EXPECT_THROW(context.report({}), run_stopped);
  EXPECT_TRUE(rank_access{context}.leaves_by_itself());
  EXPECT_EQ(link->sent.size(), 3u);
}

TEST_F(train_context_test, sends_the_refusal_of_a_value_that_is_too_large) {
  auto context = make();
  EXPECT_EQ(context.broadcast_from_rank_zero(std::string{"a"}), "a");
  auto refused = reason_of([&] {
    context.broadcast_from_rank_zero(std::string(max_broadcast_bytes, 'x'));
  });
  EXPECT_EQ(refused.code, ec::invalid_argument);
  // The other ranks wait for it.
  EXPECT_FALSE(link->offered);
}

TEST_F(train_context_test, belongs_to_the_thread_of_the_loop_until_its_end) {
  auto context = make();
  std::string elsewhere;
  std::thread{[&] {
    elsewhere = reason_of([&] { context.report({}); }).message;
  }}.join();
  EXPECT_THAT(elsewhere, HasSubstr("by a thread that is not the train loop's"));
  auto status = run_in_child([&] {
    ::_exit(reason_of([&] { context.report({}); }).code
            == ec::invalid_argument);
  });
  EXPECT_EQ(WEXITSTATUS(status), 1);
  rank_access{context}.end();
  EXPECT_THAT(reason_of([&] { context.barrier(); }).message,
              HasSubstr("after the train loop had ended"));
  EXPECT_THAT(link->sent, IsEmpty());
}

TEST_F(train_context_test, is_found_by_the_innermost_loop_of_a_thread) {
  auto outer = make();
  {
    auto inner = make();
    EXPECT_EQ(&context(), &inner);
  }
  EXPECT_EQ(&context(), &outer);
  rank_access{outer}.end();
  EXPECT_THROW(context(), std::logic_error);
}

} // namespace troupe::internal::test
