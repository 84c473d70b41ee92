// Requests to end that reach the driver of a run by its folder.

#include <atomic>
#include <future>
#include <optional>
#include <thread>

#include "tests/unit/runtime/store/run_store_fixture.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;

TEST_F(run_store_test, passes_a_request_to_end_on_to_the_driver_it_is_for) {
  auto store = open().value();
  std::promise<end_kind> asked;
  store->on_end_request([&](const end_request& x) { asked.set_value(x.how); });
  auto folder = held_folder::open(run).value();
  ASSERT_TRUE(send_end_request(folder, {own_identity(), end_kind::preempt}));
  EXPECT_EQ(asked.get_future().get(), end_kind::preempt);
  EXPECT_FALSE(fs::exists(run / "end_request"));
  store->release();
}

TEST_F(run_store_test, a_request_to_end_says_how) {
  auto store = open().value();
  store->release();
  auto folder = held_folder::open(run).value();
  auto me = own_identity();
  for (auto how : {end_kind::abort, end_kind::preempt, end_kind::finish}) {
    ASSERT_TRUE(send_end_request(folder, {me, how}));
    auto found = take_end_request(folder, me).value();
    ASSERT_TRUE(found);
    EXPECT_EQ(found->how, how);
  }
  // Of a tool of an earlier version, then of a later one.
  write_bytes(run / "end_request", "stop\n" + to_line(me));
  EXPECT_EQ(take_end_request(folder, me).value()->how, end_kind::abort);
  write_bytes(run / "end_request", "pause\n" + to_line(me));
  EXPECT_FALSE(take_end_request(folder, me).value());
}

// That of a sweep, for one: it is not looked for at its path.
TEST_F(run_store_test, a_request_to_end_is_found_in_a_folder_that_was_moved) {
  auto store = open().value();
  store->release();
  auto folder = held_folder::open(run).value();
  auto me = own_identity();
  fs::rename(run, run.string() + ".moved");
  ASSERT_TRUE(send_end_request(folder, {me, end_kind::finish}));
  auto found = take_end_request(folder, me).value();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->how, end_kind::finish);
}

TEST_F(run_store_test, requests_to_end_that_are_sent_at_once_are_whole) {
  auto store = open().value();
  store->release();
  auto folder = held_folder::open(run).value();
  auto me = own_identity();
  auto send_many = [&] {
    for (auto i = 0; i < 50; ++i)
      EXPECT_TRUE(send_end_request(folder, {me, end_kind::preempt}));
  };
  std::thread another{send_many};
  send_many();
  another.join();
  auto found = take_end_request(folder, me).value();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->how, end_kind::preempt);
}

TEST_F(run_store_test, takes_the_last_request_to_end_that_was_sent) {
  auto store = open().value();
  store->release();
  auto folder = held_folder::open(run).value();
  auto me = own_identity();
  write_bytes(run / "end_request.1", "left by a crash");
  std::atomic<bool> is_sent = false;
  std::thread another{[&] {
    for (auto i = 0; i < 50; ++i)
      EXPECT_TRUE(send_end_request(folder, {me, end_kind::abort}));
    EXPECT_TRUE(send_end_request(folder, {me, end_kind::finish}));
    is_sent = true;
  }};
  std::optional<end_kind> last;
  auto take = [&] {
    auto found = take_end_request(folder, me);
    if (found && *found)
      last = (*found)->how;
  };
  while (!is_sent)
    take();
  another.join();
  take();
  EXPECT_EQ(last, end_kind::finish);
  EXPECT_FALSE(fs::exists(run / "end_request.1"));
}

TEST_F(run_store_test, drops_a_request_to_end_that_is_not_for_its_driver) {
  auto store = open().value();
  store->release();
  auto folder = held_folder::open(run).value();
  auto me = own_identity(), earlier = me;
  earlier.start += "0";
  ASSERT_TRUE(send_end_request(folder, {earlier, end_kind::abort}));
  EXPECT_FALSE(take_end_request(folder, me).value());
  EXPECT_FALSE(fs::exists(run / "end_request"));
  write_bytes(run / "end_request", "stop\n");
  EXPECT_FALSE(take_end_request(folder, me).value());
  fs::create_symlink("run.json", run / "end_request");
  EXPECT_FALSE(take_end_request(folder, me).value());
  EXPECT_TRUE(fs::exists(run / "run.json"));
}
