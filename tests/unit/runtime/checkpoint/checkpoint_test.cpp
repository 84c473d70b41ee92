#include "troupe/runtime/checkpoint/checkpoint.hpp"

#include <csignal>
#include <thread>

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/support/checkpoint_files.hpp"
#include "tests/support/child.hpp"
#include "tests/support/saved_state.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/checkpoint/manifest.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/store/checkpoint_store.hpp"
#include "troupe/runtime/text.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;

namespace {

/// Ends this process in the middle of each large file that it writes.
void die_at_one_megabyte() {
  ::signal(SIGXFSZ, SIG_DFL);
  const rlimit most{1 << 20, 1 << 20}, no_core{0, 0};
  ::setrlimit(RLIMIT_FSIZE, &most);
  ::setrlimit(RLIMIT_CORE, &no_core);
}

/// Hides `/proc` from this process, without which a file cannot get a name
/// later: as on a file system without unnamed files.
bool hide_proc() {
  return ::unshare(CLONE_NEWNS) == 0
         && ::mount("", "/", nullptr, MS_PRIVATE | MS_REC, nullptr) == 0
         && ::umount2("/proc", MNT_DETACH) == 0;
}

} // namespace

TEST(checkpoint_test, keeps_metadata_beside_the_files) {
  temporary_folder folder;
  auto x = checkpoint::from_directory(folder.path());
  EXPECT_EQ(x.metadata().value(), metrics{});
  ASSERT_TRUE(x.set_metadata({{"a", 1}, {"b", 2}}));
  ASSERT_TRUE(x.update_metadata({{"b", "new"}}));
  EXPECT_EQ(x.metadata().value(), (metrics{{"a", 1}, {"b", "new"}}));
  ASSERT_TRUE(x.set_metadata({}));
  EXPECT_EQ(x.metadata().value(), metrics{});
  auto missing = checkpoint::from_directory(folder / "none");
  EXPECT_EQ(missing.metadata().error().code, ec::storage);
  write_bytes(folder / ".metadata.json", "{");
  EXPECT_EQ(x.metadata().error().code, ec::corrupt);
}

TEST(checkpoint_test, refuses_metadata_that_it_could_not_read_again) {
  temporary_folder folder;
  auto x = checkpoint::from_directory(folder.path());
  ASSERT_TRUE(x.set_metadata({{"a", 1}}));
  auto text = std::string(17 << 20, 'x');
  for (auto& ok : {x.set_metadata({{"b", text}}),
                   x.update_metadata({{"b", std::move(text)}})}) {
    ASSERT_FALSE(ok);
    EXPECT_NE(ok.error().message.find("the limit is 16777216"),
              std::string::npos)
      << ok.error().message;
  }
  EXPECT_EQ(x.metadata().value(), (metrics{{"a", 1}}));
}

// A2: the natural thing in a data-parallel loop.
TEST(checkpoint_test, takes_the_metadata_of_ranks_that_set_it_at_once) {
  temporary_folder folder;
  auto x = checkpoint::from_directory(folder.path());
  ASSERT_TRUE(x.set_metadata({{"rank", -1}}));
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.push_back(::fork());
    if (ranks.back() != 0)
      continue;
    auto refused = 0;
    for (int i = 0; i < 50; ++i) {
      refused += !x.set_metadata(
        {{"rank", rank}, {"text", std::string(20000, char('a' + rank))}});
      auto found = x.metadata();
      refused += !found || !found->contains("rank");
    }
    ::_exit(refused > 0);
  }
  for (auto pid : ranks) {
    auto status = -1;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator{folder.path()},
                          fs::directory_iterator{}),
            1);
}

TEST(checkpoint_test, keeps_all_that_ranks_add_to_the_metadata_at_once) {
  temporary_folder folder;
  auto x = checkpoint::from_directory(folder.path());
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.push_back(::fork());
    if (ranks.back() != 0)
      continue;
    auto refused = 0;
    for (int i = 0; i < 25; ++i)
      refused += !x.update_metadata(
        {{"rank" + std::to_string(rank) + "." + std::to_string(i), i}});
    ::_exit(refused > 0);
  }
  for (auto pid : ranks) {
    auto status = -1;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  EXPECT_EQ(x.metadata().value().size(), 100u);
  EXPECT_EQ(std::distance(fs::directory_iterator{folder.path()},
                          fs::directory_iterator{}),
            1);
}

TEST(checkpoint_test, stays_complete_when_a_rank_dies_setting_metadata) {
  temporary_folder run;
  fs::create_directory(run / "checkpoints");
  auto store = checkpoint_store::open(held(run.path()), {"r"}, {}, {},
                                      saves_in(run.path()))
                 .value();
  ASSERT_TRUE(store.begin_attempt(0));
  auto x =
    store.commit(0, stage_batch(run.path(), 0, 0, "c", {{{"a", "1"}}}).value())
      .value();
  for (auto moment : {"replace.written", "replace.renamed"}) {
    auto status = run_in_child([&] {
      (void) arm_failpoint(moment);
      (void) x.data.set_metadata({{"accuracy", 0.9}});
    });
    ASSERT_TRUE(WIFSIGNALED(status)) << moment;
    EXPECT_TRUE(x.data.verify()) << moment;
    EXPECT_EQ(store.resume_checkpoint().value(), x.unpacked()) << moment;
  }
  EXPECT_TRUE(store.take_events().empty());
}

TEST(checkpoint_test, copies_its_files_to_a_folder) {
  temporary_folder folder;
  fs::create_directory(folder / "from");
  write_bytes(folder.path() / "from" / "x", "1");
  auto x = checkpoint::from_directory(folder / "from");
  EXPECT_EQ(x.to_directory(folder.path() / "a" / "b").value(),
            folder.path() / "a" / "b");
  EXPECT_EQ(bytes_of(folder.path() / "a" / "b" / "x"), "1");
}

TEST(checkpoint_test, copies_every_file_but_its_own_manifest) {
  temporary_folder folder;
  auto from = folder / "from";
  fs::create_directories(from / "tok");
  write_bytes(from / "manifest.json", to_json(manifest{}));
  write_bytes(from / ".metadata.json", "{}");
  write_bytes(from / ".metadata.json.Xa09zQ", "{"); // its writer was killed
  for (auto name : {"manifest.json", ".metadata.json", ".metadata.json.Xa09zQ"})
    write_bytes(from / "tok" / name, "mine");
  auto x = checkpoint::from_directory(from);
  ASSERT_TRUE(x.to_directory(folder / "to"));
  EXPECT_EQ(names_below(folder / "to"),
            (std::vector<std::string>{".metadata.json", "tok/.metadata.json",
                                      "tok/.metadata.json.Xa09zQ",
                                      "tok/manifest.json"}));
  write_bytes(from / "manifest.json", "{\"name\": \"a model of the user\"}");
  ASSERT_TRUE(x.to_directory(folder / "again"));
  EXPECT_EQ(bytes_of(folder.path() / "again" / "manifest.json"),
            bytes_of(from / "manifest.json"));
}

TEST(checkpoint_test, leaves_nothing_that_a_report_takes_if_it_is_killed) {
  temporary_folder folder;
  fs::create_directory(folder / "from");
  write_bytes(folder.path() / "from" / "x", std::string(4 << 20, 'x'));
  auto x = checkpoint::from_directory(folder / "from");
  for (auto named : {false, true})
    for (std::string before : {"", "an earlier copy"}) {
      SCOPED_TRACE((named ? "named " : "unnamed ") + before);
      auto to = folder / concat(named ? "named" : "unnamed", before.size());
      fs::create_directory(to);
      if (!before.empty())
        write_bytes(to / "x", before);
      auto status = run_in_child([&] {
        if (named && !hide_proc())
          ::_exit(9);
        die_at_one_megabyte();
        (void) x.to_directory(to);
      });
      if (WIFEXITED(status) && WEXITSTATUS(status) == 9)
        GTEST_SKIP() << "/proc cannot be hidden";
      ASSERT_TRUE(WIFSIGNALED(status));
      using names = std::vector<std::string>;
      EXPECT_EQ(names_below(to), before.empty() ? names{} : names{"x"});
      EXPECT_EQ(std::distance(fs::directory_iterator{to}, {}),
                (before.empty() ? 0 : 1) + (named ? 1 : 0));
      write_bytes(to / ".troupe-copy-1", "mine");
      write_bytes(to / "y", "");
      ASSERT_TRUE(
        checkpoint::from_directory(to).to_directory(to.string() + ".reported"));
      EXPECT_EQ(names_below(to.string() + ".reported"),
                (before.empty() ? names{".troupe-copy-1", "y"}
                                : names{".troupe-copy-1", "x", "y"}));
    }
}

TEST(checkpoint_test, is_copied_where_files_cannot_get_a_name_later) {
  temporary_folder folder;
  fs::create_directory(folder / "from");
  write_bytes(folder.path() / "from" / "x", "1");
  auto x = checkpoint::from_directory(folder / "from");
  auto status = run_in_child([&] {
    if (!hide_proc())
      ::_exit(9);
    for (int i = 0; i < 2; ++i)
      if (!x.to_directory(folder / "to"))
        ::_exit(1);
  });
  if (WIFEXITED(status) && WEXITSTATUS(status) == 9)
    GTEST_SKIP() << "/proc cannot be hidden";
  ASSERT_EQ(status, 0);
  EXPECT_EQ(bytes_of(folder.path() / "to" / "x"), "1");
  EXPECT_EQ(std::distance(fs::directory_iterator{folder / "to"},
                          fs::directory_iterator{}),
            1);
}

TEST(checkpoint_test, refuses_a_file_that_became_shorter) {
  temporary_folder folder;
  fs::create_directory(folder / "from");
  auto path = (folder / "from" / "x").string();
  constexpr auto size = off_t{16} << 20;
  write_bytes(path, std::string(size, 'x'));
  std::jthread other{[&](std::stop_token over) {
    while (!over.stop_requested()) {
      ASSERT_EQ(::truncate(path.c_str(), 1), 0);
      ASSERT_EQ(::truncate(path.c_str(), size), 0);
    }
  }};
  auto x = checkpoint::from_directory(folder / "from");
  // Until the file is cut while it is copied.
  for (;;) {
    auto copied = x.to_directory(folder / "to");
    if (copied)
      continue;
    EXPECT_EQ(copied.error().code, ec::storage);
    EXPECT_NE(copied.error().message.find("could be copied"), std::string::npos)
      << copied.error().message;
    break;
  }
}

TEST(checkpoint_test, is_not_copied_into_itself) {
  temporary_folder folder;
  fs::create_directories(folder.path() / "from" / "sub");
  write_bytes(folder.path() / "from" / "sub" / "x", "1");
  fs::create_directory_symlink(folder / "from", folder / "link");
  auto x = checkpoint::from_directory(folder / "from");
  for (fs::path inner :
       {"from", "from/sub", "from/new/copy", "link/new", "other/../from/new"}) {
    auto copied = x.to_directory(folder.path() / inner);
    ASSERT_FALSE(copied) << inner;
    EXPECT_EQ(copied.error().code, ec::invalid_argument) << inner;
  }
  EXPECT_EQ(std::distance(fs::recursive_directory_iterator{x.path()},
                          fs::recursive_directory_iterator{}),
            2); // as it was
  EXPECT_TRUE(x.to_directory(folder / "from.copy"));
}

TEST(checkpoint_test, is_merged_into_a_folder_that_has_an_earlier_copy) {
  temporary_folder folder;
  fs::create_directories(folder.path() / "from" / "sub");
  fs::create_directories(folder.path() / "to" / "sub");
  write_bytes(folder.path() / "from" / "x", "new");
  write_bytes(folder.path() / "from" / "sub" / "y", "new");
  write_bytes(folder.path() / "to" / "x", "old, and longer");
  write_bytes(folder.path() / "to" / "mine", "mine");
  auto x = checkpoint::from_directory(folder / "from");
  for (int i = 0; i < 2; ++i)
    ASSERT_TRUE(x.to_directory(folder / "to"));
  EXPECT_EQ(bytes_of(folder.path() / "to" / "x"), "new");
  EXPECT_EQ(bytes_of(folder.path() / "to" / "sub" / "y"), "new");
  EXPECT_EQ(bytes_of(folder.path() / "to" / "mine"), "mine");
  EXPECT_EQ(std::distance(fs::directory_iterator{folder / "to"},
                          fs::directory_iterator{}),
            3); // no temporary file
  fs::create_directory(folder.path() / "from" / "mine");
  EXPECT_FALSE(x.to_directory(folder / "to")); // a folder onto a file
}
