#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <iterator>
#include <string>
#include <utility>

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "tests/support/child.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/sweep/sweep_store.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal::test {

using testing::HasSubstr;

class sweep_store_test : public ::testing::Test {
protected:
  using store = expected<std::unique_ptr<sweep_store>>;

  store open(const std::string& space = "[1]",
             const std::string& searcher = "grid") {
    sweep_description x;
    x.name = "sweep";
    x.space = space;
    x.searcher = searcher;
    return sweep_store::open(storage_.path(), std::move(x));
  }

  static trial trial_of(std::size_t index) {
    trial x;
    x.index = index;
    x.name = trial_name(index);
    x.params = {{"lr", 0.1}, {"kind", "a"}};
    return x;
  }

  static trial ended(trial x) {
    x.status = run_status_kind::finished;
    x.score = 0.5;
    x.metrics = {{"loss", 0.5}, {"step", 3}};
    x.reports = 4;
    x.seconds = 1.5;
    x.reason = "it was good enough";
    return x;
  }

  fs::path file(const char* name) const { return storage_ / "sweep" / name; }

  temporary_folder storage_;
};

TEST_F(sweep_store_test, returns_what_an_earlier_start_has_stored) {
  std::string id;
  {
    auto first = open().value();
    id = first->description().id;
    EXPECT_EQ(id.size(), 32u);
    for (std::size_t i = 0; i < 3; ++i)
      ASSERT_TRUE(first->begin(trial_of(i)));
    ASSERT_TRUE(first->compare({"loss", {1, 0, 0.5, false, 7}}));
    ASSERT_TRUE(first->end(ended(trial_of(2))));
    ASSERT_TRUE(first->end(ended(trial_of(0))));
  }
  auto next = open().value();
  EXPECT_EQ(next->description().id, id);
  auto& x = next->history();
  EXPECT_THAT(x.trials, testing::ElementsAre(ended(trial_of(0)), trial_of(1),
                                             ended(trial_of(2))));
  EXPECT_THAT(x.ends, testing::ElementsAre(2, 0));
  ASSERT_EQ(x.comparisons.size(), 1u);
  EXPECT_EQ(x.comparisons[0].metric, "loss");
  EXPECT_EQ(x.comparisons[0].content, (halving::entry{1, 0, 0.5, false, 7}));
}

TEST_F(sweep_store_test, shows_a_reader_the_sweep_while_a_driver_has_it) {
  auto store = open().value();
  sweep_start begin;
  begin.metric = "val/loss";
  begin.order = score_order::max;
  begin.trials = 7;
  ASSERT_TRUE(store->start(begin));
  ASSERT_TRUE(store->begin(trial_of(0)));
  auto path = storage_ / "sweep";
  auto seen = read_sweep(path);
  ASSERT_TRUE(seen) << seen.error().message;
  EXPECT_EQ(seen->description.id, store->description().id);
  EXPECT_EQ(seen->history.trials.size(), 1u);
  ASSERT_TRUE(seen->history.start);
  EXPECT_EQ(seen->history.start->driver, own_identity());
  EXPECT_EQ(seen->history.start->metric, "val/loss");
  EXPECT_EQ(seen->history.start->order, score_order::max);
  EXPECT_EQ(seen->history.start->trials, 7u);
  EXPECT_FALSE(seen->history.end);
  ASSERT_TRUE(store->finish({run_status_kind::aborted, "", "a signal"}));
  // Half a line is not damage: the driver writes it now.
  auto journal = bytes_of(file("sweep.jsonl"));
  write_bytes(file("sweep.jsonl"), journal + "{\"ev");
  seen = read_sweep(path);
  ASSERT_TRUE(seen) << seen.error().message;
  ASSERT_TRUE(seen->history.end);
  EXPECT_EQ(seen->history.end->status, run_status_kind::aborted);
  EXPECT_EQ(seen->history.end->reason, "a signal");
  write_bytes(file("sweep.jsonl"), journal);
  ASSERT_TRUE(store->start(begin));
  EXPECT_FALSE(read_sweep(path)->history.end) << "it is under way again";
  auto other = read_sweep(storage_.path());
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ec::invalid_argument);
}

TEST_F(sweep_store_test, forgets_a_line_that_was_not_finished) {
  ASSERT_TRUE(open().value()->begin(trial_of(0)));
  auto whole = bytes_of(file("sweep.jsonl"));
  write_bytes(file("sweep.jsonl"), whole + whole.substr(0, 20));
  auto next = open().value();
  EXPECT_EQ(next->history().trials.size(), 1u);
  ASSERT_TRUE(next->begin(trial_of(1)));
  next.reset();
  EXPECT_EQ(open().value()->history().trials.size(), 2u);
}

TEST_F(sweep_store_test, names_a_damaged_line) {
  {
    auto first = open().value();
    ASSERT_TRUE(first->begin(trial_of(0)));
    ASSERT_TRUE(first->begin(trial_of(1)));
  }
  auto bytes = bytes_of(file("sweep.jsonl"));
  bytes[10] ^= 1;
  write_bytes(file("sweep.jsonl"), bytes);
  auto next = open();
  ASSERT_FALSE(next);
  EXPECT_EQ(next.error().code, ec::corrupt);
  EXPECT_THAT(next.error().message, HasSubstr("sweep.jsonl, line 1"));
  EXPECT_EQ(bytes_of(file("sweep.jsonl")), bytes) << "left as it is";
}

// Comparisons are not synced: their place in the file may be on the disk before
// their bytes are.
TEST_F(sweep_store_test, continues_without_lines_that_a_power_cut_took) {
  {
    auto first = open().value();
    ASSERT_TRUE(first->begin(trial_of(0)));
    ASSERT_TRUE(first->compare({"loss", {0, 0, 0.5, true}}));
    ASSERT_TRUE(first->compare({"loss", {0, 1, 0.5, true}}));
    ASSERT_TRUE(first->begin(trial_of(1)));
  }
  auto bytes = bytes_of(file("sweep.jsonl"));
  auto from = bytes.find('\n') + 1;
  auto to = bytes.find('\n', bytes.find('\n', from) + 1);
  std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(from),
            bytes.begin() + static_cast<std::ptrdiff_t>(to), '\0');
  write_bytes(file("sweep.jsonl"), bytes);
  for (std::size_t begun = 2; begun < 4; ++begun) {
    auto next = open();
    ASSERT_TRUE(next) << next.error().message;
    auto& x = (*next)->history();
    EXPECT_EQ(x.trials.size(), begun);
    EXPECT_TRUE(x.comparisons.empty());
    ASSERT_EQ(x.damaged.size(), 1u);
    EXPECT_THAT(x.damaged[0].message, HasSubstr("sweep.jsonl, line 2"));
    ASSERT_TRUE((*next)->begin(trial_of(begun)));
  }
}

TEST_F(sweep_store_test, SS1_refuses_the_folder_of_a_trial_whose_line_is_lost) {
  {
    auto first = open().value();
    ASSERT_TRUE(first->begin(trial_of(0)));
    ASSERT_TRUE(first->begin(trial_of(1)));
  }
  auto bytes = bytes_of(file("sweep.jsonl"));
  bytes[bytes.size() - 10] ^= 1;
  write_bytes(file("sweep.jsonl"), bytes);
  fs::create_directory(file("trial-0001"));
  auto next = open();
  ASSERT_FALSE(next);
  EXPECT_EQ(next.error().code, ec::corrupt);
  EXPECT_THAT(next.error().message, HasSubstr("sweep.jsonl, line 2"));
  EXPECT_EQ(bytes_of(file("sweep.jsonl")), bytes) << "left as it is";
  fs::remove(file("trial-0001"));
  EXPECT_EQ(open().value()->history().trials.size(), 1u);
}

TEST_F(sweep_store_test, refuses_another_sweep_once_a_trial_has_begun) {
  ASSERT_TRUE(open("[1]"));
  ASSERT_TRUE(open("[2]").value()->begin(trial_of(0)));
  auto other = open("[3]");
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ec::conflict);
  EXPECT_THAT(other.error().message,
              HasSubstr("its space is [2], this one's is [3]"));
  EXPECT_FALSE(open("[2]", "random, seed 0"));
  EXPECT_TRUE(open("[2]"));
}

TEST_F(sweep_store_test, refuses_the_folder_of_a_run_or_of_something_else) {
  fs::create_directory(storage_ / "sweep");
  write_bytes(file("notes.txt"), "mine");
  auto x = open();
  ASSERT_FALSE(x);
  EXPECT_EQ(x.error().code, ec::conflict);
  EXPECT_THAT(x.error().message, HasSubstr("holds notes.txt, but no sweep"));
  write_bytes(file("run.json"), "{}");
  EXPECT_THAT(open().error().message, HasSubstr("is the folder of a run"));
  EXPECT_FALSE(fs::exists(file("sweep.json")));
}

TEST_F(sweep_store_test, makes_names_durable_that_a_killed_start_has_left) {
  fs::create_directory(storage_ / "sweep");
  const std::pair<const char*, fs::path> syncs[] = {
    {"storage.sync_file=eio", storage_.path()},
    {"storage.sync_file:2=eio", storage_ / ".."}};
  for (auto& [fails, path] : syncs) {
    ASSERT_TRUE(arm_failpoint(fails));
    auto x = open();
    ASSERT_TRUE(arm_failpoint(""));
    ASSERT_FALSE(x) << fails;
    EXPECT_THAT(x.error().message, HasSubstr(path.string() + ':'));
  }
  EXPECT_TRUE(open());
}

// Its owner could say with which params trials have begun.
TEST_F(sweep_store_test, refuses_a_folder_of_another_user) {
  if (::geteuid() != 0)
    GTEST_SKIP() << "only root can give a folder away";
  ASSERT_TRUE(open());
  ASSERT_EQ(::chown((storage_ / "sweep").c_str(), 65534, 65534), 0);
  auto x = open();
  ASSERT_FALSE(x);
  EXPECT_EQ(x.error().code, ec::storage);
  EXPECT_THAT(x.error().message, HasSubstr("belongs to user 65534"));
}

// Else a power cut could take the line of a trial that has trained meanwhile.
TEST_F(sweep_store_test, SS1_relies_on_no_line_that_is_not_durable) {
  ASSERT_TRUE(open().value()->begin(trial_of(0)));
  ASSERT_TRUE(arm_failpoint("storage.sync_file=eio"));
  auto x = open();
  ASSERT_TRUE(arm_failpoint(""));
  ASSERT_FALSE(x);
  EXPECT_THAT(x.error().message, HasSubstr(file("sweep.jsonl").string()));
  EXPECT_EQ(open().value()->history().trials.size(), 1u);
}

// A sync of the same file succeeds without the lines that an earlier one lost.
TEST_F(sweep_store_test, SS1_relies_on_lines_of_another_file) {
  ASSERT_TRUE(open().value()->begin(trial_of(0)));
  struct stat before {};
  struct stat after {};
  ASSERT_EQ(::stat(file("sweep.jsonl").c_str(), &before), 0);
  auto next = open().value();
  ASSERT_EQ(::stat(file("sweep.jsonl").c_str(), &after), 0);
  EXPECT_NE(before.st_ino, after.st_ino);
  ASSERT_TRUE(next->begin(trial_of(1)));
  EXPECT_EQ(read_sweep(storage_ / "sweep")->history.trials.size(), 2u);
}

namespace {

/// From now on fdatasync fails in this process. False if the system does not
/// let it filter its own calls.
bool let_fdatasync_fail() {
  sock_filter steps[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_fdatasync, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EIO),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  sock_fprog filter{static_cast<unsigned short>(std::size(steps)), steps};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
         && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0
         && ::fdatasync(-1) != 0 && errno == EIO;
}

} // namespace

TEST_F(sweep_store_test, SS3_adds_nothing_behind_a_line_that_may_be_lost) {
  auto status = run_in_child([this] {
    auto store = open().value();
    if (!store->begin(trial_of(0)))
      ::_exit(2);
    if (!let_fdatasync_fail())
      ::_exit(3);
    auto fails = !store->begin(trial_of(1)) && !store->end(ended(trial_of(0)))
                 && !store->compare({"loss", {0, 0, 0.5, true}});
    ::_exit(fails ? 0 : 2);
  });
  if (WIFEXITED(status) && WEXITSTATUS(status) == 3)
    GTEST_SKIP() << "no process may filter its own system calls here";
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  // Here the lost line is there: no power cut has come.
  auto next = open().value();
  EXPECT_EQ(next->history().trials.size(), 2u);
  EXPECT_TRUE(next->history().ends.empty());
}

TEST_F(sweep_store_test, refuses_trials_without_their_journal) {
  ASSERT_TRUE(open());
  fs::remove(file("sweep.jsonl"));
  EXPECT_TRUE(open()) << "no trial has begun";
  fs::create_directory(file("trial-0000"));
  EXPECT_TRUE(open());
  fs::remove(file("sweep.jsonl"));
  auto x = open();
  ASSERT_FALSE(x);
  EXPECT_EQ(x.error().code, ec::corrupt);
  EXPECT_THAT(x.error().message, HasSubstr(file("sweep.jsonl").string()));
  EXPECT_FALSE(fs::exists(file("sweep.jsonl"))) << "left as it is";
  fs::remove(file("sweep.json"));
  EXPECT_TRUE(open()) << "the sweep was removed, its trial has files of others";
}

TEST_F(sweep_store_test, serves_one_process_at_a_time) {
  auto first = open().value();
  auto second = open();
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ec::conflict);
  EXPECT_EQ(second.error().message, "this process runs the sweep in "
                                      + (storage_ / "sweep").string()
                                      + " already");
  auto holder = concat("pid ", own_identity().pid);
  auto child = ::fork();
  if (child == 0) {
    auto third = open();
    auto refused = !third
                   && third.error().message.starts_with("another process")
                   && third.error().message.find(holder) != std::string::npos;
    ::_exit(refused ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(sweep_store_test, leaves_its_name_free_once_it_is_removed) {
  ASSERT_TRUE(open("[1]").value()->begin(trial_of(0)));
  write_bytes(file("notes.txt"), "mine");
  write_bytes(file("compare.html"), "a page");
  write_bytes(file("sweep.json.new"), "half of it");
  auto folder = held_folder::open(storage_ / "sweep").value();
  {
    auto lock = lock_sweep(folder);
    ASSERT_TRUE(lock);
    EXPECT_FALSE(lock_sweep(folder)) << "it is taken";
    EXPECT_THAT(remove_sweep_files(folder).value(),
                testing::ElementsAre("notes.txt"));
  }
  EXPECT_THAT(folder.names().value(),
              testing::ElementsAre("notes.txt", "sweep.lock"));
  EXPECT_EQ(open("[2]").value()->history().trials.size(), 0u);
  fs::remove(file("notes.txt"));
  EXPECT_TRUE(remove_sweep_files(folder).value().empty());
  EXPECT_TRUE(folder.names().value().empty());
}

TEST_F(sweep_store_test, takes_a_request_for_its_own_driver_once) {
  auto store = open().value();
  auto folder = held_folder::open(storage_ / "sweep").value();
  EXPECT_FALSE(store->take_end_request().value());
  auto other = own_identity();
  other.pid += 1;
  ASSERT_TRUE(send_end_request(folder, {other, end_kind::abort}));
  EXPECT_FALSE(store->take_end_request().value());
  ASSERT_TRUE(send_end_request(folder, {own_identity(), end_kind::preempt}));
  auto request = store->take_end_request().value();
  ASSERT_TRUE(request);
  EXPECT_EQ(request->how, end_kind::preempt);
  EXPECT_FALSE(store->take_end_request().value());
}

} // namespace troupe::internal::test
