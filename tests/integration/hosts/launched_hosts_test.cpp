// Runs that launch the agents of their hosts. A script in the place of ssh
// starts them on this machine.

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <sys/stat.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <troupe/train.hpp>

#include "tests/support/environment_guard.hpp"
#include "tests/support/own_system.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/store/run_folder.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/trainers/run_parts.hpp"

namespace troupe::internal::test {

namespace {

using testing::IsEmpty;
using testing::SizeIs;

void report_host(train_context& context) {
  context.report({{"host", context.node_rank()}});
}

class launched_hosts_test : public testing::Test {
protected:
  launched_hosts_test() {
    fs::create_directory(folder_ / "bin");
    ::mkfifo((folder_ / "begun").c_str(), 0600);
    begun_.open((folder_ / "begun").string(), std::ios::in | std::ios::out);
  }

  std::string quoted(const std::string& name) const {
    return concat('\'', (folder_ / name).string(), '\'');
  }

  /// From now on `ssh` notes its process, then does *what*.
  void use_ssh(const std::string& what) const {
    auto path = folder_ / "bin" / "ssh";
    write_bytes(path, concat("#!/bin/sh\necho $$ >>", quoted("launchers"), '\n',
                             what, '\n'));
    fs::permissions(path, fs::owner_all);
  }

  /// An `ssh` that says when it has begun, and keeps its input.
  void use_ssh_that_waits() const {
    use_ssh(concat("echo begun >", quoted("begun"), "\nexec cat >>",
                   quoted("input")));
  }

  /// Waits until *count* of them have begun.
  void await_launchers(int count) {
    std::string line;
    while (count-- > 0)
      std::getline(begun_, line);
  }

  /// All processes that were `ssh`.
  std::vector<pid_t> launchers() const {
    std::vector<pid_t> result;
    std::ifstream in{(folder_ / "launchers").string()};
    for (pid_t pid; in >> pid;)
      result.push_back(pid);
    return result;
  }

  /// They have ended, and none of them got a ticket.
  void expect_nothing_left() const {
    for (auto pid : launchers())
      EXPECT_EQ(::kill(pid, 0), -1) << pid;
    EXPECT_THAT(bytes_of(folder_ / "input"), IsEmpty());
  }

  data_parallel_trainer trainer() const {
    train_options options;
    options.scaling.num_workers = 2;
    options.scaling.hosts = {"first-host", "second-host"};
    options.run.name = "run";
    options.run.storage_path = folder_ / "storage";
    options.run.quiet = true;
    return data_parallel_trainer{report_host, options};
  }

  temporary_folder folder_;
  environment_guard path_{
    {{"PATH", concat((folder_ / "bin").string(), ':', std::getenv("PATH"))}}};
  std::fstream begun_;
};

TEST_F(launched_hosts_test, trains_on_hosts_that_were_each_launched_once) {
  use_ssh("for last in \"$@\"; do :; done\nexec sh -c \"$last\"");
  auto outcome = trainer().fit();
  EXPECT_EQ(outcome.status, run_status_kind::finished)
    << (outcome.error ? outcome.error->message : "");
  EXPECT_THAT(launchers(), SizeIs(2));
}

// Agents start while the run is recovered.
TEST_F(launched_hosts_test, a_start_that_is_given_up_ends_its_launchers) {
  use_ssh_that_waits();
  own_system system;
  auto asked = 0;
  run_surroundings around;
  around.given_up = [&] {
    if (asked++ == 0)
      return false;
    if (asked == 2) // The attempt would begin.
      await_launchers(2);
    return true;
  };
  auto run = prepare(request_of(trainer())).and_then([&](prepared_request x) {
    return run_access::start(std::move(x), system, around);
  });
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().code, ec::stopped);
  EXPECT_THAT(launchers(), SizeIs(2));
  expect_nothing_left();
}

TEST_F(launched_hosts_test, a_run_that_another_driver_has_launches_no_agent) {
  use_ssh_that_waits();
  auto other = run_folder::open(folder_ / "storage", "run");
  ASSERT_TRUE(other) << other.error().message;
  auto outcome = trainer().fit();
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ec::conflict);
  EXPECT_THAT(launchers(), IsEmpty());
}

} // namespace

} // namespace troupe::internal::test
