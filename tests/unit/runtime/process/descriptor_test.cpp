#include "troupe/runtime/process/descriptor.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/runtime/process/started_rank.hpp"

using namespace troupe;
using namespace troupe::internal;

TEST(descriptor_test, names_the_process_and_user_at_the_other_end) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  unique_fd one{ends[0]};
  unique_fd other{ends[1]};
  auto peer = peer_of(one.get()).value();
  EXPECT_EQ(peer.pid, ::getpid());
  EXPECT_EQ(peer.uid, ::getuid());
  EXPECT_EQ(peer.gid, ::getgid());
}

TEST(descriptor_test, fails_for_anything_else) {
  auto pipe = test::make_pipe();
  EXPECT_EQ(peer_of(pipe.reader.get()).error().code, ec::protocol);
  unique_fd unconnected{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  EXPECT_EQ(peer_of(unconnected.get()).error().code, ec::protocol);
}
