#include "troupe/runtime/process/log_tee.hpp"

#include <fstream>
#include <future>
#include <iterator>
#include <optional>
#include <stdexcept>

#include <boost/filesystem.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/no_new_threads.hpp"
#include "tests/unit/runtime/process/no_memory.hpp"
#include "tests/unit/runtime/process/started_rank.hpp"
#include "troupe/runtime/process/spawner.hpp"

using namespace troupe;
using namespace troupe::internal;
namespace bfs = boost::filesystem;
using testing::HasSubstr;

namespace {

struct log_tee_test : testing::Test {
  void TearDown() override { bfs::remove(path); }

  std::string log() const {
    std::ifstream file{path.string()};
    return {std::istreambuf_iterator<char>{file}, {}};
  }

  bfs::path path =
    bfs::temp_directory_path() / bfs::unique_path("tee-%%%%%%%%.log");
};

void write_all(const unique_fd& fd, std::string_view text) {
  while (!text.empty()) {
    auto n = ::write(fd.get(), text.data(), text.size());
    ASSERT_GT(n, 0);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

} // namespace

TEST_F(log_tee_test, copies_what_a_rank_prints_to_the_log_and_the_console) {
  std::string console;
  {
    auto tee = log_tee::start(path.string(), [&](std::string_view text) {
                 console += text;
               }).value();
    auto request = test::command("print hello");
    request.output = tee.writer().value();
    test::run_rank(**spawner(), std::move(request));
  }
  EXPECT_EQ(console, "hello to stdout\nhello to stderr\nunflushed");
  EXPECT_EQ(log(), console);
}

TEST_F(log_tee_test, does_not_wait_for_a_writer_that_outlives_the_rank) {
  unique_fd writer;
  {
    auto tee = log_tee::start(path.string(), nullptr).value();
    writer = tee.writer().value();
    write_all(writer, "before");
  }
  EXPECT_EQ(log(), "before");
}

TEST_F(log_tee_test, keeps_the_rank_going_while_the_console_hangs) {
  std::promise<void> release;
  auto released = release.get_future().share();
  std::string console;
  const std::string text(3 * log_tee::max_behind, 'x');
  {
    auto tee = log_tee::start(path.string(), [&](std::string_view piece) {
                 released.wait();
                 console += piece;
               }).value();
    auto writer = tee.writer().value();
    write_all(writer, text); // Far more than a pipe holds.
    release.set_value();
  }
  EXPECT_EQ(log(), text);
  EXPECT_LT(console.size(), text.size());
  EXPECT_THAT(console, HasSubstr("bytes more are in the log only]"));
}

TEST_F(log_tee_test, continues_the_log_after_the_console_has_thrown) {
  int calls = 0;
  {
    auto tee = log_tee::start(path.string(), [&](std::string_view) {
                 ++calls;
                 throw std::runtime_error{"broken"};
               }).value();
    auto writer = tee.writer().value();
    write_all(writer, std::string(100'000, 'x'));
  }
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(log().size(), 100'000u);
}

TEST_F(log_tee_test, needs_no_memory_to_copy_what_a_rank_prints) {
  if (!test::memory_can_be_scarce)
    GTEST_SKIP() << "a sanitizer has an operator new of its own";
  const std::string text(10'000, 'x');
  std::string console;
  console.reserve(text.size());
  std::optional tee = log_tee::start(path.string(), [&](std::string_view x) {
                        console += x;
                      }).value();
  auto writer = tee->writer().value();
  {
    test::no_memory_elsewhere none;
    write_all(writer, text);
    tee.reset();
  }
  EXPECT_EQ(log(), text);
  EXPECT_EQ(console, text);
}

TEST_F(log_tee_test, appends_to_a_log_that_is_there) {
  for (int i = 0; i < 2; ++i) {
    auto tee = log_tee::start(path.string(), nullptr).value();
    write_all(tee.writer().value(), "line\n");
  }
  EXPECT_EQ(log(), "line\nline\n");
}

TEST_F(log_tee_test, serves_one_rank_after_the_other) {
  std::string console;
  {
    auto tee = log_tee::start(path.string(), [&](std::string_view text) {
                 console += text;
               }).value();
    for (int i = 0; i < 2; ++i) {
      auto request = test::command("print hello");
      request.output = tee.writer().value();
      test::run_rank(**spawner(), std::move(request));
    }
  }
  std::string once = "hello to stdout\nhello to stderr\nunflushed";
  EXPECT_EQ(console, once + once);
  EXPECT_EQ(log(), once + once);
}

TEST_F(log_tee_test, fails_if_there_is_no_thread_for_it) {
  test::no_new_threads none;
  auto tee = log_tee::start(path.string(), nullptr);
  ASSERT_FALSE(tee);
  EXPECT_EQ(tee.error().code, ec::spawn);
  EXPECT_THAT(tee.error().message, HasSubstr(path.string()));
}

TEST_F(log_tee_test, names_a_log_that_cannot_be_opened) {
  auto tee = log_tee::start("/proc/no/such.log", nullptr);
  ASSERT_FALSE(tee);
  EXPECT_EQ(tee.error().code, ec::storage);
  EXPECT_THAT(tee.error().message, HasSubstr("/proc/no/such.log"));
}
