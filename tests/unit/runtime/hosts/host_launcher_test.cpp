#include "troupe/runtime/hosts/host_launcher.hpp"

#include <chrono>
#include <clocale>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/idle_child.hpp"
#include "tests/support/no_new_threads.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/runtime/hosts/launched_agents.hpp"
#include "troupe/runtime/process/processes.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {
namespace {

using test::launch_records;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

using command_line = std::vector<std::string>;

/// A command of the shell as the launcher.
command_line shell(const std::string& text) {
  return {"/bin/sh", "-c", text};
}

/// A pipe that can be opened on both ends without waiting: a script that reads
/// it waits until the test has written a line.
class named_pipe {
public:
  explicit named_pipe(fs::path path) : path_(std::move(path)) {
    ::mkfifo(path_.c_str(), 0600);
    stream_.open(path_.string(), std::ios::in | std::ios::out);
  }

  std::string read_line() {
    std::string result;
    std::getline(stream_, result);
    return result;
  }

  std::string text() const { return path_.string(); }

private:
  fs::path path_;
  std::fstream stream_;
};

/// Whether the process that was killed is gone; on a busy machine that takes
/// longer than the grace of these tests.
bool is_gone(pid_t pid) {
  auto process = open_pidfd(pid);
  return process ? has_ended(process, 10'000) : errno == ESRCH;
}

class host_launcher_test : public testing::Test {
protected:
  static constexpr host_launcher::limits impatient{
    .grace = std::chrono::milliseconds{20}};

  host_launcher make(host_launcher::limits x = {}) {
    auto result = host_launcher::start(records.listener(), x);
    EXPECT_TRUE(result) << result.error().message;
    return std::move(*result);
  }

  test::temporary_folder folder;
  launch_records records;
};

TEST_F(host_launcher_test, gives_the_ticket_and_then_the_end_of_input) {
  auto output = (folder / "output").string();
  auto launcher = make();
  launcher.launch(1,
                  shell("cat >'" + output + "'; echo over >>'" + output + "'"),
                  "the ticket\n");
  records.wait_for_delivery(1);
  launcher.end(1);
  auto end = records.end_of(1);
  EXPECT_EQ(end.how, (process_exit{process_exit::kind::exited, 0, {}}));
  EXPECT_EQ(end.output, "");
  EXPECT_EQ(test::bytes_of(output), "the ticket\nover\n");
}

TEST_F(host_launcher_test, writes_a_long_input_as_the_launcher_reads_it) {
  auto output = (folder / "output").string();
  std::string input(1'000'000, 'x');
  auto launcher = make();
  launcher.launch(1, shell("cat >'" + output + "'"), input);
  records.wait_for_delivery(1);
  launcher.end(1);
  EXPECT_EQ(records.end_of(1).how.code, 0);
  EXPECT_EQ(test::bytes_of(output), input);
}

TEST_F(host_launcher_test, reports_how_a_launcher_ended_and_its_last_lines) {
  auto launcher = make();
  launcher.launch(1,
                  shell("echo shown nowhere; echo first >&2; printf "
                        "'ssh: connect to host h3 port 22: \\033Connection "
                        "timed out\\r\\n\\n' >&2; exit 255"),
                  "ticket");
  auto end = records.end_of(1);
  EXPECT_EQ(end.output,
            "first\nssh: connect to host h3 port 22: Connection timed out");
  EXPECT_EQ(to_string(end),
            "first; ssh: connect to host h3 port 22: Connection timed out "
            "(exited with code 255)");
  EXPECT_TRUE(end.may_help());
  launcher.launch(2, shell("kill -9 $$"), "ticket");
  EXPECT_EQ(to_string(records.end_of(2)),
            "its launcher killed by signal 9 (SIGKILL)");
  launcher.launch(3, shell("exit 78"), "ticket");
  EXPECT_FALSE(records.end_of(3).may_help());
  // In a shell whose job has ended.
  launcher.launch(4,
                  shell("echo 'srun: error: Unable to confirm allocation for "
                        "job 7: Invalid job id specified' >&2; exit 1"),
                  "ticket");
  EXPECT_FALSE(records.end_of(4).may_help());
}

TEST_F(host_launcher_test, tells_what_a_launcher_says_that_waits) {
  auto launcher = make({.patience = std::chrono::milliseconds{0}});
  launcher.launch(1,
                  shell("echo 'srun: Job step creation temporarily disabled, "
                        "retrying (Requested nodes are busy)' >&2; exec cat"),
                  "ticket");
  EXPECT_EQ(records.words_of(1),
            "srun: Job step creation temporarily disabled, retrying (Requested "
            "nodes are busy)");
  EXPECT_EQ(records.ends_of(1), 0u);
}

TEST_F(host_launcher_test, tells_that_a_launcher_could_not_be_started) {
  auto launcher = make();
  launcher.launch(1, {"no-such-launcher", "h1"}, "ticket");
  auto end = records.end_of(1);
  EXPECT_EQ(end.how.how, process_exit::kind::lost);
  EXPECT_EQ(to_string(end),
            "cannot start no-such-launcher: No such file or directory");
  EXPECT_FALSE(end.may_help());
  launcher.launch(2, {}, "ticket");
  EXPECT_EQ(records.end_of(2).how.how, process_exit::kind::lost);
}

TEST_F(host_launcher_test, knows_in_any_language_that_there_is_no_launcher) {
  auto is_set = false;
  for (auto name : {"de_DE.UTF-8", "fr_FR.UTF-8", "es_ES.UTF-8", "ja_JP.UTF-8"})
    is_set = is_set || std::setlocale(LC_ALL, name) != nullptr;
  if (!is_set)
    GTEST_SKIP() << "only English is installed";
  auto launcher = make();
  launcher.launch(1, {"no-such-launcher", "h1"}, "ticket");
  auto end = records.end_of(1);
  EXPECT_FALSE(end.may_help()) << end.output;
  std::setlocale(LC_ALL, "C");
}

TEST_F(host_launcher_test, keeps_only_the_last_lines) {
  auto launcher = make();
  launcher.launch(1,
                  shell("yes 'a line of noise' | head -c 3000000 >&2; "
                        "head -c 5000 /dev/zero | tr '\\0' x >&2; echo >&2; "
                        "for i in $(seq 12); do echo \"cause $i\" >&2; done"),
                  "");
  EXPECT_EQ(records.end_of(1).output,
            "cause 1\ncause 2\ncause 3\ncause 4\ncause 5\ncause 6\n"
            "cause 7\ncause 8\ncause 9\ncause 10\ncause 11\ncause 12");
  launcher.launch(2, shell("head -c 5000 /dev/zero | tr '\\0' x >&2"), "");
  EXPECT_THAT(records.end_of(2).output, SizeIs(300));
}

TEST_F(host_launcher_test, shows_all_addresses_of_a_driver_that_was_not_found) {
  auto launcher = make();
  launcher.launch(1,
                  shell("echo 'troupe: no driver:' >&2; for i in $(seq 8); do "
                        "echo \"  10.0.0.$i: refused\" >&2; done; exit 75"),
                  "");
  EXPECT_EQ(to_string(records.end_of(1)),
            "troupe: no driver: 10.0.0.1: refused; 10.0.0.2: refused; "
            "10.0.0.3: refused; 10.0.0.4: refused; 10.0.0.5: refused; "
            "10.0.0.6: refused; 10.0.0.7: refused; 10.0.0.8: refused (exited "
            "with code 75)");
}

TEST_F(host_launcher_test, does_not_show_secrets) {
  auto launcher = make();
  launcher.launch(1, shell("echo 'https://me:hunter2@host/ refused' >&2"), "");
  EXPECT_THAT(records.end_of(1).output,
              AllOf(HasSubstr("refused"), Not(HasSubstr("hunter2"))));
}

TEST_F(host_launcher_test, starts_a_few_at_a_time) {
  auto begun = folder / "begun";
  auto wait_for_end = shell("echo x >>'" + begun.string() + "'; cat >&2");
  auto launcher = make({.starting = 2});
  for (std::uint64_t i = 1; i <= 5; ++i)
    launcher.launch(i, wait_for_end, "");
  records.wait_for_delivery(1);
  records.wait_for_delivery(2);
  EXPECT_THAT(records.delivered(), ElementsAre(1, 2));
  launcher.arrived(1); // It continues, but another one may start.
  records.wait_for_delivery(3);
  EXPECT_THAT(records.delivered(), ElementsAre(1, 2, 3));
  launcher.end(2);
  records.wait_for_delivery(4);
  EXPECT_EQ(records.ends_of(1), 0u);
  launcher.end(5); // Before it began.
  EXPECT_EQ(to_string(records.end_of(5)), "its launcher did not begin");
  EXPECT_THAT(records.delivered(), ElementsAre(1, 2, 3, 4));
}

TEST_F(host_launcher_test, a_launcher_that_cannot_start_takes_no_turn) {
  auto launcher = make({.starting = 1});
  launcher.launch(1, shell("cat"), "");
  launcher.launch(2, {"no-such-launcher"}, "");
  launcher.launch(3, shell("cat"), "");
  records.wait_for_delivery(1);
  launcher.arrived(1);
  EXPECT_EQ(records.end_of(2).how.how, process_exit::kind::lost);
  records.wait_for_delivery(3);
}

TEST_F(host_launcher_test, a_prepared_launcher_waits_for_its_launch) {
  named_pipe begun{folder / "begun"};
  auto output = (folder / "output").string();
  auto launcher = make({.patience = std::chrono::milliseconds{0}});
  launcher.prepare(1, shell("echo a word >&2; echo $$ >'" + begun.text()
                            + "'; exec cat >'" + output + "'"));
  auto pid = begun.read_line();
  launcher.launch(2, shell("cat"), "");
  records.wait_for_delivery(2);
  EXPECT_THAT(records.delivered(), ElementsAre(2));
  launcher.launch(1, {"no-such-launcher"}, "the ticket\n");
  EXPECT_EQ(records.words_of(1), "a word");
  launcher.end(1);
  EXPECT_EQ(records.end_of(1).how,
            (process_exit{process_exit::kind::exited, 0, {}}));
  EXPECT_EQ(test::bytes_of(output), "the ticket\n");
  EXPECT_TRUE(is_gone(std::stoi(pid)));
}

TEST_F(host_launcher_test, starts_another_launcher_if_the_prepared_one_ended) {
  auto launcher = make({.starting = 1});
  launcher.prepare(1, shell("echo why >&2; exit 3"));
  launcher.prepare(2, {"no-such-launcher"});
  launcher.launch(3, shell("cat"), ""); // Begins once those have ended.
  records.wait_for_delivery(3);
  launcher.launch(1, shell("cat >&2"), "the first");
  launcher.launch(2, shell("cat >&2"), "the second");
  for (std::uint64_t i : {1, 2}) {
    launcher.arrived(i == 1 ? 3 : 1);
    records.wait_for_delivery(i);
    EXPECT_EQ(records.ends_of(i), 0u);
  }
  launcher.end(1);
  launcher.end(2);
  EXPECT_EQ(records.end_of(1).output, "the first");
  EXPECT_EQ(records.end_of(2).output, "the second");
}

TEST_F(host_launcher_test, a_launch_keeps_the_turn_of_what_was_prepared) {
  auto launcher = make({.starting = 1});
  for (std::uint64_t i : {1, 2, 3})
    launcher.prepare(i, shell("cat >&2"));
  launcher.launch(3, shell("cat >&2"), "the third");
  launcher.launch(2, shell("cat >&2"), "the second");
  launcher.launch(1, shell("cat >&2"), "the first");
  records.wait_for_delivery(1);
  launcher.arrived(1);
  records.wait_for_delivery(2);
  EXPECT_THAT(records.delivered(), ElementsAre(1, 2));
  launcher.end(2);
  EXPECT_EQ(records.end_of(2).output, "the second");
}

TEST_F(host_launcher_test, ends_what_was_prepared_and_says_nothing_of_it) {
  named_pipe begun{folder / "begun"};
  pid_t pid = -1;
  {
    auto launcher = make({.starting = 1});
    launcher.prepare(1, shell("echo $$ >'" + begun.text() + "'; exec cat"));
    launcher.prepare(2, shell("cat"));
    pid = std::stoi(begun.read_line());
  }
  EXPECT_TRUE(is_gone(pid));
  EXPECT_THAT(records.delivered(), IsEmpty());
  EXPECT_EQ(records.ends_of(1), 0u);
  EXPECT_EQ(records.ends_of(2), 0u);
}

TEST_F(host_launcher_test, ends_a_launcher_that_ignores_its_end_of_input) {
  named_pipe begun{folder / "begun"};
  auto launcher = make(impatient);
  launcher.launch(1, shell("echo $$ >'" + begun.text() + "'; exec sleep 600"),
                  "");
  begun.read_line();
  launcher.end(1);
  EXPECT_EQ(records.end_of(1).how,
            (process_exit{process_exit::kind::signaled, SIGTERM, {}}));
  launcher.launch(2,
                  shell("trap '' TERM; echo $$ >'" + begun.text()
                        + "'; while :; do sleep 600; done"),
                  "");
  begun.read_line();
  launcher.end(2);
  EXPECT_EQ(records.end_of(2).how,
            (process_exit{process_exit::kind::signaled, SIGKILL, {}}));
}

TEST_F(host_launcher_test, leaves_nothing_behind) {
  named_pipe begun{folder / "begun"};
  std::vector<pid_t> helpers;
  {
    auto launcher = make(impatient);
    // The helper holds standard error open.
    launcher.launch(1,
                    shell("sleep 600 & echo $! >'" + begun.text()
                          + "'; echo why >&2; exit 3"),
                    "");
    helpers.push_back(std::stoi(begun.read_line()));
    auto end = records.end_of(1);
    EXPECT_EQ(to_string(end), "why (exited with code 3)");
    EXPECT_TRUE(is_gone(helpers.front()));
    launcher.launch(
      2,
      shell("trap '' TERM; sleep 600 & echo $! >'" + begun.text() + "'; wait"),
      "");
    helpers.push_back(std::stoi(begun.read_line()));
    launcher.launch(3, shell("cat"), "");
    records.wait_for_delivery(3);
  }
  for (auto pid : helpers)
    EXPECT_TRUE(is_gone(pid));
  for (std::uint64_t i = 1; i <= 3; ++i)
    EXPECT_EQ(records.ends_of(i), 1u);
  EXPECT_THAT(own_children(), testing::IsEmpty());
}

TEST_F(host_launcher_test, reports_each_launch_once_when_it_is_destroyed) {
  {
    auto launcher = make({.starting = 1, .grace = std::chrono::seconds{60}});
    for (std::uint64_t i = 1; i <= 3; ++i)
      launcher.launch(i, shell("cat"), "ticket");
  }
  for (std::uint64_t i = 1; i <= 3; ++i)
    EXPECT_EQ(records.ends_of(i), 1u);
}

TEST_F(host_launcher_test, gives_no_descriptor_and_no_signal_mask_away) {
  auto launcher = make();
  launcher.launch(1,
                  {"sh", "-c",
                   "ls /proc/self/fd >&2; grep -h SigBlk /proc/self/status "
                   "| tr -d '0\\t' >&2"},
                  "");
  // The last one reads the folder.
  EXPECT_EQ(records.end_of(1).output, "0\n1\n2\n3\nSigBlk:");
}

TEST_F(host_launcher_test, a_forked_process_keeps_no_input_open) {
  TROUPE_SKIP_FORKS_UNDER_TSAN();
  auto launcher = make({.grace = std::chrono::seconds{10}});
  launcher.launch(1, shell("cat"), "ticket");
  records.wait_for_delivery(1);
  test::idle_child child;
  ASSERT_TRUE(child.is_there());
  launcher.end(1);
  EXPECT_EQ(records.end_of(1).how,
            (process_exit{process_exit::kind::exited, 0, {}}));
}

TEST_F(host_launcher_test, gives_a_launcher_the_variables_for_it) {
  auto output = (folder / "output").string();
  auto launcher = make();
  launcher.launch(1, {"/usr/bin/env", "sh", "-c", "env >'" + output + "'"}, "",
                  std::vector<std::string>{"PATH=/usr/bin:/bin", "FIRST=1"});
  EXPECT_EQ(records.end_of(1).how.code, 0);
  EXPECT_THAT(test::bytes_of(output),
              AllOf(HasSubstr("FIRST=1\n"), Not(HasSubstr("HOME="))));
}

TEST_F(host_launcher_test, says_that_no_thread_is_left) {
  test::no_new_threads none;
  auto launcher = host_launcher::start(records.listener());
  ASSERT_FALSE(launcher);
  EXPECT_EQ(launcher.error().code, ec::spawn);
}

TEST_F(host_launcher_test, passes_any_argument_through_a_shell) {
  command_line program{"/usr/bin/printf", "[%s]\\n"};
  std::string expected;
  for (std::string text :
       {"it's", "$HOME `id` $(id)", "a;b|c&d>e<f", "\\", "\"", "'", "", "*",
        " a  b ", "!x", "~", "#", "-n"}) {
    program.push_back(text);
    expected += '[' + text + "]\n";
  }
  auto command = agent_command(launch_engine::ssh, "h1", program);
  ASSERT_TRUE(command);
  auto output = (folder / "output").string();
  auto launcher = make();
  launcher.launch(1, shell("(" + command->back() + ") >'" + output + "'"), "");
  EXPECT_EQ(records.end_of(1).how.code, 0);
  EXPECT_EQ(test::bytes_of(output), expected);
}

} // namespace
} // namespace troupe::internal
