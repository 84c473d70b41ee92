#include "troupe/runtime/process/spawn_wire.hpp"

#include <sys/socket.h>

#include <gtest/gtest.h>

namespace troupe::internal::test {
namespace {

class frame_reader_test : public testing::Test {
protected:
  frame_reader_test() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      std::abort();
    sender = unique_fd{ends[0]};
    receiver = unique_fd{ends[1]};
  }

  void send(std::string_view bytes, bool with_descriptor = false) {
    std::vector<unique_fd> descriptors;
    if (with_descriptor)
      descriptors.push_back(std::move(*duplicate(sender.get())));
    auto n = send_with_descriptors(sender.get(), bytes, descriptors);
    ASSERT_EQ(n, static_cast<ssize_t>(bytes.size()));
    ASSERT_EQ(reader.receive(receiver.get()), n);
  }

  unique_fd sender;
  unique_fd receiver;
  frame_reader reader;
};

} // namespace

TEST_F(frame_reader_test, gives_a_frame_once_it_has_arrived_whole) {
  auto bytes = make_frame(spawn_frame::started, "body", 1);
  send(bytes.substr(0, 3), true);
  EXPECT_FALSE(reader.next().value());
  send(bytes.substr(3, bytes.size() - 4));
  EXPECT_FALSE(reader.next().value());
  send(bytes.substr(bytes.size() - 1));
  auto frame = reader.next().value().value();
  EXPECT_EQ(frame.kind, spawn_frame::started);
  EXPECT_EQ(frame.body, "body");
  EXPECT_TRUE(frame.descriptor);
  EXPECT_FALSE(reader.next().value());
}

TEST_F(frame_reader_test, gives_frames_of_one_piece_in_order) {
  send(make_frame(spawn_frame::hello, "")
       + make_frame(spawn_frame::ended, "first")
       + make_frame(spawn_frame::ended, "second"));
  EXPECT_EQ(reader.next().value().value().kind, spawn_frame::hello);
  EXPECT_EQ(reader.next().value().value().body, "first");
  auto last = reader.next().value().value();
  EXPECT_EQ(last.body, "second");
  EXPECT_FALSE(last.descriptor);
}

TEST_F(frame_reader_test, refuses_bytes_of_someone_else) {
  send(std::string(64, '\xee'));
  auto frame = reader.next();
  ASSERT_FALSE(frame);
  EXPECT_EQ(frame.error().code, ec::protocol);
}

TEST(rank_end_test, arrives_as_it_was_sent_or_not_at_all) {
  using kind = process_exit::kind;
  for (auto how : {kind::exited, kind::signaled, kind::lost}) {
    const process_exit sent{how, 9, "words"};
    auto bytes = encode(rank_end{7, sent});
    auto end = decode_rank_end(bytes);
    ASSERT_TRUE(end);
    EXPECT_EQ(end->id, 7u);
    EXPECT_EQ(end->how, sent);
    for (std::size_t size = 0; size < bytes.size(); ++size)
      EXPECT_FALSE(decode_rank_end(std::string_view{bytes}.substr(0, size)));
  }
  const process_exit none{static_cast<kind>(3), 0, {}};
  EXPECT_FALSE(decode_rank_end(encode(rank_end{7, none})));
}

TEST_F(frame_reader_test, forgets_what_an_earlier_spawner_sent) {
  auto bytes = make_frame(spawn_frame::ended, "old");
  send(bytes.substr(0, bytes.size() - 1), true);
  reader.clear();
  send(make_frame(spawn_frame::started, "new", 1));
  auto frame = reader.next().value().value();
  EXPECT_EQ(frame.body, "new");
  EXPECT_FALSE(frame.descriptor);
}

TEST_F(frame_reader_test, says_that_nothing_has_arrived_or_will) {
  EXPECT_EQ(reader.receive(receiver.get()), -1);
  EXPECT_EQ(errno, EAGAIN);
  sender.reset();
  EXPECT_EQ(reader.receive(receiver.get()), 0);
}

} // namespace troupe::internal::test
