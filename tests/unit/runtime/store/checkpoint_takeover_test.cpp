// A run whose folder another driver takes, or that is replaced: nothing is
// touched in what belongs to others.

#include <sys/stat.h>

#include "tests/unit/runtime/store/checkpoint_store_fixture.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;

TEST_F(checkpoint_store_test, N6_checks_again_before_a_checkpoint_is_named) {
  auto taken = false;
  auto store = checkpoint_store::open(held(run.path()), {"r"}, {}, {},
                                      saves_in(run.path()), {},
                                      [&]() -> expected<void> {
                                        if (taken)
                                          return failure(ec::conflict, "taken");
                                        return {};
                                      })
                 .value();
  attempt = store.begin_attempt(0).value();
  ASSERT_TRUE(commit(store, 0));
  taken = true; // While the files of the next one are gathered.
  auto refused = commit(store, 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ec::conflict);
  EXPECT_FALSE(fs::exists(folder(1)));
  EXPECT_EQ(entries(), 1u);
}

// The driver stands still; the next one takes the run over, and gives the name
// that is to go to a checkpoint of its own.
TEST_F(checkpoint_store_test,
       removes_no_checkpoint_of_the_driver_that_is_next) {
  auto is_taken = failure(ec::conflict, "taken");
  for (auto moment : {"after the state", "before the look", "after the look"}) {
    for (auto notices : {true, false}) {
      SCOPED_TRACE(std::string{moment} + (notices ? ", seen" : ", not seen"));
      fs::remove(run / "state.json");
      fs::remove_all(run / "checkpoints");
      auto stands_still = [&](const char* here) {
        return here == std::string{moment};
      };
      auto commits = false;
      auto taken = false;
      auto take_over = [&] {
        fs::rename(folder(0), run / "theirs");
        auto next = open(keep_one);
        auto theirs = next.begin_attempt(9).value();
        ASSERT_TRUE(next.commit(
          theirs,
          stage_batch(run.path(), theirs, 9, name(0), {{{"a", "B"}}}).value()));
        fs::remove_all(run / "theirs");
        taken = true;
      };
      auto save = [&](const saved_run& x) {
        auto saved = save_run(x, run.path());
        if (commits && stands_still("after the state"))
          take_over();
        return saved;
      };
      auto looks = 0;
      auto check = [&]() -> expected<void> {
        auto evicts = commits && ++looks == 2;
        if (evicts && stands_still("before the look"))
          take_over();
        if (taken && notices)
          return is_taken;
        if (evicts && stands_still("after the look"))
          take_over();
        return {};
      };
      auto store = checkpoint_store::open(held(run.path()), {"r"}, keep_one, {},
                                          save, {}, check)
                     .value();
      attempt = store.begin_attempt(0).value();
      ASSERT_TRUE(commit(store, 0));
      commits = true;
      EXPECT_TRUE(commit(store, 1));
      commits = false;
      ASSERT_TRUE(taken);
      EXPECT_EQ(bytes_of(folder(0) / "a"), "B");
      EXPECT_EQ(read_manifest(folder(0)).value().index, 9u);
    }
  }
}

TEST_F(checkpoint_store_test, removes_no_staging_of_the_driver_that_is_next) {
  auto taken = false;
  auto store = checkpoint_store::open(
                 held(run.path()), {"r"}, {}, {},
                 [&](const saved_run& x) {
                   auto saved = save_run(x, run.path());
                   taken = true;
                   return saved;
                 },
                 {},
                 [&]() -> expected<void> {
                   if (taken)
                     return failure(ec::conflict, "taken");
                   return {};
                 })
                 .value();
  auto theirs = run.path() / "checkpoints" / ".staging-7-0";
  fs::create_directories(theirs);
  ASSERT_TRUE(store.begin_attempt(0));
  EXPECT_TRUE(fs::exists(theirs));
  ASSERT_TRUE(store.finish(run_status_kind::errored, std::nullopt, 0));
  EXPECT_TRUE(fs::exists(theirs));
}

TEST_F(checkpoint_store_test, sets_aside_nothing_of_the_driver_that_is_next) {
  {
    auto store = open();
    attempt = store.begin_attempt(0).value();
    ASSERT_TRUE(commit(store, 0));
  }
  write_bytes(folder(0) / "a", "rotten");
  auto take_over = [&](const store_event&, std::uint64_t) -> expected<void> {
    fs::rename(folder(0), run / "rotten");
    fs::create_directory(folder(0));
    write_bytes(folder(0) / "a", "B");
    return {};
  };
  auto state = load_run(run.path()).value().value();
  auto store = checkpoint_store::open(held(run.path()), {"r"}, {}, state,
                                      saves_in(run.path()), take_over)
                 .value();
  auto resume = store.resume_checkpoint();
  ASSERT_FALSE(resume);
  EXPECT_TRUE(mentions(resume.error(), folder(0).string()));
  EXPECT_EQ(bytes_of(folder(0) / "a"), "B");
}

TEST_F(checkpoint_store_test, names_no_checkpoint_in_a_folder_it_lost) {
  auto store = open();
  attempt = store.begin_attempt(0).value();
  ASSERT_TRUE(commit(store, 0));
  auto batch =
    stage_batch(run.path(), attempt, 1, name(1), {{{"a", "1"}}}).value();
  fs::rename(run / "checkpoints", run / "before");
  for (auto there : {false, true}) {
    if (there)
      fs::create_directory(run / "checkpoints");
    auto done = store.commit(attempt, batch);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, ec::storage);
    EXPECT_TRUE(mentions(done.error(), (run / "checkpoints").string()));
    EXPECT_FALSE(store.begin_attempt(1));
  }
  EXPECT_TRUE(fs::is_empty(run / "checkpoints"));
  EXPECT_EQ(load_run(run.path()).value()->checkpoints.size(), 1u);
  EXPECT_EQ(bytes_of(run / "before" / name(0) / "a"), "rank 0");
}

// The run's folder is renamed, and another one, a link or nothing gets its
// name, right after any look of the store at whether the run is still its own.
class replaced_folder_test : public testing::TestWithParam<const char*> {
protected:
  using texts = std::map<std::string, std::string>;

  // What is in *folder*: the text of each file, the mode of each folder.
  static texts contents_of(const fs::path& folder) {
    texts result;
    for (auto& x : fs::recursive_directory_iterator{folder}) {
      struct stat found {};
      EXPECT_EQ(::lstat(x.path().c_str(), &found), 0);
      result[x.path().string()] = S_ISREG(found.st_mode)
                                    ? bytes_of(x.path())
                                    : std::to_string(found.st_mode);
    }
    return result;
  }

  // A run with checkpoint c0 that has got as far as the one that is replaced.
  static void begin(const fs::path& run) {
    fs::create_directory(run);
    auto folder = held(run);
    auto store = open(held(run), folder, {});
    ASSERT_EQ(store.begin_attempt(0).value(), 0u);
    ASSERT_TRUE(
      store.commit(0, stage_batch(run, 0, 0, "c0", {{{"a", "0"}}}).value()));
    auto other = stage_batch(run, 1, 1, "c1", {{{"a", "theirs"}}});
    ASSERT_TRUE(other);
    write_bytes(run / "checkpoints/.staging-1-1/rank_0/s", "theirs");
    fs::create_directory(run / "checkpoints/.evicted-0-c0");
    write_bytes(run / "checkpoints/.evicted-0-c0/a", "theirs");
  }

  static checkpoint_store open(held_folder folder, const held_folder& state_in,
                               checkpoint_store::check_function check) {
    auto state = load_run(folder.path()).value().value_or(saved_run{});
    return checkpoint_store::open(
             std::move(folder), {"r"}, {1, "", score_order::max}, state,
             [&](const saved_run& x) {
               return state_in.replace_file("state.json", to_json(x));
             },
             {}, std::move(check))
      .value();
  }

  void replace() {
    fs::rename(run_, storage_ / "moved");
    begin(storage_ / "other");
    if (GetParam() == std::string{"another_run"})
      fs::rename(storage_ / "other", run_);
    else if (GetParam() == std::string{"a_link"})
      fs::create_directory_symlink(storage_ / "other", run_);
    auto other = fs::exists(run_) ? run_ : storage_ / "other";
    before_ = contents_of(other);
  }

  temporary_folder storage_;
  fs::path run_ = storage_ / "run";
  texts before_;
};

TEST_P(replaced_folder_test, does_not_touch_another_folder_at_its_path) {
  auto replaced = true;
  auto moments = 0;
  for (auto nth = 1; replaced; ++nth) {
    SCOPED_TRACE("look " + std::to_string(nth));
    for (auto& x : fs::directory_iterator{storage_.path()})
      fs::remove_all(x.path());
    begin(run_);
    auto folder = held(run_);
    auto looks = 0;
    auto is_rotten = false;
    auto check = [&]() -> expected<void> {
      if (++looks == nth)
        replace();
      return {};
    };
    {
      auto store = open(held(run_), folder, check);
      (void) store.resume_checkpoint();
      (void) store.begin_attempt(1);
      for (std::uint64_t i = 1; i < 3; ++i) {
        auto staged = staging::create(run_, 1, 0, folder.inode());
        auto late = looks >= nth;
        EXPECT_EQ(late, !staged);
        if (late)
          break;
        write_bytes(staged->path() / "a", "1");
        report_batch batch;
        batch.index = i;
        batch.values.resize(1);
        batch.parts.push_back(
          staging::seal(*staged, i, "c" + std::to_string(i)).value());
        (void) store.commit(1, batch);
      }
      auto newest = store.registry().latest();
      is_rotten = looks < nth;
      if (is_rotten) { // the only one that is kept
        write_bytes(newest->data.path() / "a", "rotten");
        (void) store.resume_checkpoint();
      }
      (void) store.finish(run_status_kind::errored, std::nullopt, 3);
    }
    replaced = looks >= nth;
    if (!replaced)
      break;
    ++moments;
    EXPECT_EQ(fs::exists(run_), GetParam() != std::string{"nothing"});
    auto other = fs::exists(run_) ? run_ : storage_ / "other";
    EXPECT_EQ(contents_of(other), before_);
    // What was acknowledged went with the folder, or its successor did.
    auto left = open(held(storage_ / "moved"), folder, {});
    EXPECT_NE(is_rotten, left.resume_checkpoint().value().has_value());
  }
  EXPECT_GE(moments, 8);
}

INSTANTIATE_TEST_SUITE_P(ways, replaced_folder_test,
                         testing::Values("another_run", "a_link", "nothing"),
                         [](auto& info) { return info.param; });
