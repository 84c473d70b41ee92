#include "troupe/actors/door/ticket.hpp"

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal {

namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

class ticket_test : public testing::Test {
protected:
  ticket_test() {
    auto made = make_certificates("run1");
    given.addresses = {"10.0.0.7", "fd00::7", "node-3.cluster"};
    given.port = 4444;
    given.run = "run1";
    given.own = made->agent;
    text = encode(given).view();
  }

  /// The error of the text whose *from* is *to*.
  error with(const std::string& from, const std::string& to) const {
    auto changed = text;
    auto at = changed.find(from);
    EXPECT_NE(at, changed.npos) << from;
    changed.replace(at, from.size(), to);
    return problem(changed);
  }

  static error problem(std::string_view of) {
    auto result = parse_ticket(of);
    return result ? error{} : result.error();
  }

  /// A file with the ticket and *mode*.
  fs::path file(mode_t mode) const {
    auto path = folder / "ticket";
    ::unlink(path.c_str());
    test::write_bytes(path, text);
    ::chmod(path.c_str(), mode);
    return path;
  }

  ticket given;
  std::string text;
  test::temporary_folder folder;
};

TEST_F(ticket_test, reads_back_what_it_wrote) {
  auto read = parse_ticket(text);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->addresses, given.addresses);
  EXPECT_EQ(read->port, 4444);
  EXPECT_EQ(read->run, "run1");
  EXPECT_EQ(read->own.authority, given.own.authority);
  EXPECT_EQ(read->own.certificate, given.own.certificate);
  EXPECT_EQ(read->own.key.view(), given.own.key.view());
  EXPECT_LT(text.size(), 2000u);
}

TEST_F(ticket_test, refuses_every_truncated_ticket) {
  for (std::size_t size = 0; size < text.size(); ++size)
    EXPECT_EQ(problem(text.substr(0, size)).code, ec::corrupt) << size;
}

TEST_F(ticket_test, says_that_a_ticket_is_empty) {
  EXPECT_EQ(problem("").message, "this is not a ticket of a run: it is empty");
}

TEST_F(ticket_test, refuses_a_key_with_a_damaged_byte) {
  // The number that is secret has 32 bytes, from the 36th of the key on.
  auto begin = text.find("\nkey ") + 5;
  for (auto at = begin + 48; at < begin + 90; ++at) {
    auto damaged = text;
    damaged[at] = damaged[at] == 'A' ? 'B' : 'A';
    EXPECT_EQ(problem(damaged).code, ec::corrupt) << at;
  }
}

TEST_F(ticket_test, refuses_what_encode_does_not_write) {
  EXPECT_EQ(problem(text + "\n").code, ec::corrupt);
  EXPECT_EQ(with("ticket 1", "ticket 2").code, ec::corrupt);
  for (auto port : {"0", "65536", "04444", "+4444", "4444 ", "", "x"})
    EXPECT_EQ(with("port 4444", std::string{"port "} + port).code, ec::corrupt)
      << port;
  EXPECT_EQ(with("10.0.0.7", "a b").code, ec::corrupt);
  EXPECT_EQ(with("10.0.0.7", "").code, ec::corrupt);
  EXPECT_EQ(with("10.0.0.7", std::string(254, 'x')).code, ec::corrupt);
  EXPECT_EQ(with("run run1", "run run1 ").code, ec::invalid_config);
  EXPECT_EQ(with("port 4444\n", "").code, ec::corrupt);
  EXPECT_EQ(with("key ", "key  ").code, ec::corrupt);
  EXPECT_EQ(with("end", "End").code, ec::corrupt);
  std::string many;
  for (int i = 0; i < 40; ++i)
    many += "address 10.0.0.1\n";
  EXPECT_EQ(with("address 10.0.0.7\n", many).code, ec::corrupt);
  EXPECT_EQ(problem(std::string(max_ticket_size + 1, 'x')).code, ec::corrupt);
}

TEST_F(ticket_test, refuses_the_certificate_of_another_run_or_role) {
  EXPECT_EQ(with("run run1", "run run2").code, ec::corrupt);
  EXPECT_EQ(parse_ticket(text, host_role::driver).error().code, ec::corrupt);
}

TEST_F(ticket_test, shows_no_part_of_a_damaged_ticket) {
  auto at = text.find("\nkey ") + 5;
  auto secret = text.substr(at, 20);
  auto found = problem(text.substr(0, at - 4) + text.substr(at));
  EXPECT_EQ(found.code, ec::corrupt);
  EXPECT_THAT(found.message, Not(HasSubstr(secret)));
  EXPECT_THAT(found.message, HasSubstr("is not 'key <value>'"));
}

TEST_F(ticket_test, reads_from_a_pipe_that_stays_open) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  unique_fd from{ends[0]}, to{ends[1]};
  std::thread writer{[&] {
    for (char c : text)
      EXPECT_EQ(::write(to.get(), &c, 1), 1);
  }};
  auto read = read_ticket(from.get(), 10s);
  writer.join();
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->run, "run1");
}

TEST_F(ticket_test, refuses_a_pipe_that_ends_early) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  unique_fd from{ends[0]}, to{ends[1]};
  ASSERT_EQ(::write(to.get(), text.data(), 100), 100);
  to.reset();
  EXPECT_EQ(read_ticket(from.get(), 10s).error().code, ec::corrupt);
}

TEST_F(ticket_test, gives_a_silent_pipe_up) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  unique_fd from{ends[0]}, to{ends[1]};
  ASSERT_EQ(::write(to.get(), text.data(), 100), 100);
  EXPECT_EQ(read_ticket(from.get(), 20ms).error().code, ec::timeout);
}

// An agent that a signal asks to leave while it waits for a ticket.
TEST_F(ticket_test, waits_no_longer_when_it_is_asked_to_stop) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  unique_fd from{ends[0]}, to{ends[1]};
  wake_event stop;
  stop.notify();
  EXPECT_EQ(read_ticket_text(from.get(), 1h, stop.fd()).error().code,
            ec::stopped);
  ASSERT_EQ(::write(to.get(), text.data(), text.size()),
            static_cast<ssize_t>(text.size()));
  EXPECT_TRUE(read_ticket_text(from.get(), 1h, stop.fd())) << "it is there";
}

TEST_F(ticket_test, stops_to_read_at_its_limit) {
  unique_fd zeros{::open("/dev/zero", O_RDONLY | O_CLOEXEC)};
  EXPECT_EQ(read_ticket(zeros.get(), 10s).error().code, ec::corrupt);
}

TEST_F(ticket_test, reads_a_file_that_is_closed_to_others) {
  for (mode_t mode : {0600, 0400})
    EXPECT_TRUE(read_ticket_file(file(mode)));
  // A mounted secret is a link into a folder that changes as a whole.
  auto link = folder / "link";
  ASSERT_EQ(::symlink(file(0400).c_str(), link.c_str()), 0);
  EXPECT_TRUE(read_ticket_file(link));
}

TEST_F(ticket_test, refuses_a_file_that_others_can_read) {
  for (mode_t mode : {0644, 0620, 0604, 0700, 04600})
    EXPECT_EQ(read_ticket_file(file(mode)).error().code, ec::invalid_config)
      << std::oct << mode;
}

// Those of a pod with an fsGroup belong to root and to that group.
TEST_F(ticket_test, reads_a_file_that_root_lets_a_group_read) {
  for (mode_t mode : {0640, 0440}) {
    auto path = file(mode);
    EXPECT_EQ(read_ticket_file(path).has_value(), ::geteuid() == 0);
    if (::geteuid() != 0)
      continue;
    ASSERT_EQ(::chown(path.c_str(), 0, 65534), 0);
    EXPECT_TRUE(read_ticket_file(path)) << "of a group";
    ASSERT_EQ(::chown(path.c_str(), 65534, 0), 0);
    EXPECT_FALSE(read_ticket_file(path)) << "of another user";
  }
}

TEST_F(ticket_test, refuses_a_file_of_another_user) {
  auto path = file(0600);
  if (::geteuid() == 0)
    ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
  else if (path = "/etc/hostname"; ::access(path.c_str(), R_OK) != 0)
    GTEST_SKIP() << "no file of another user can be read here";
  EXPECT_EQ(read_ticket_file(path).error().code, ec::invalid_config);
}

TEST_F(ticket_test, refuses_what_is_not_a_file) {
  EXPECT_EQ(read_ticket_file(folder.path()).error().code, ec::invalid_config);
  auto pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(read_ticket_file(pipe).error().code, ec::invalid_config);
  EXPECT_EQ(read_ticket_file(folder / "none").error().code, ec::storage);
  auto loop = folder / "loop";
  ASSERT_EQ(::symlink(loop.c_str(), loop.c_str()), 0);
  EXPECT_EQ(read_ticket_file(loop).error().code, ec::invalid_config)
    << "it does not pass";
}

TEST_F(ticket_test, replaces_nothing_but_tickets) {
  auto is_place = [](const fs::path& path) {
    return is_place_for_ticket(path).value();
  };
  EXPECT_TRUE(is_place(folder / "none"));
  EXPECT_TRUE(is_place(file(0600)));
  auto other = folder / "other";
  for (auto& [content, is_free] :
       {std::pair{"", true}, std::pair{"troupe-ticket 2\nrun x\n", true},
        std::pair{"my notes\n", false}, std::pair{"troupe", false}}) {
    test::write_bytes(other, content);
    EXPECT_EQ(is_place(other), is_free) << content;
  }
  EXPECT_FALSE(is_place(folder.path()));
  auto link = folder / "link";
  ASSERT_EQ(::symlink(file(0600).c_str(), link.c_str()), 0);
  EXPECT_FALSE(is_place(link));
  auto pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_FALSE(is_place(pipe));
}

TEST_F(ticket_test, finds_the_addresses_of_this_host) {
  auto found = host_addresses();
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_FALSE(found->empty());
  for (const auto& x : *found) {
    in6_addr bytes;
    EXPECT_EQ(::inet_pton(x.find(':') == x.npos ? AF_INET : AF_INET6, x.c_str(),
                          &bytes),
              1)
      << x;
    EXPECT_FALSE(x.starts_with("fe80")) << x;
  }
}

} // namespace

} // namespace troupe::internal
