#include "troupe/runtime/process/spawner.hpp"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <thread>

#include <boost/filesystem.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/child.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/runtime/process/no_memory.hpp"
#include "tests/unit/runtime/process/process_modes.hpp"
#include "tests/unit/runtime/process/started_rank.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/log_tee.hpp"
#include "troupe/runtime/process/start_program.hpp"
#include "troupe/runtime/process/usable_cores.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;
using testing::HasSubstr;

namespace {

struct spawner_test : testing::Test {
  spawner_connection& client = **spawner();
};

struct spawn_many_test : spawner_test, testing::WithParamInterface<int> {};

} // namespace

TEST_F(spawner_test, answers_once_there_is_memory_again) {
  if (!memory_can_be_scarce)
    GTEST_SKIP() << "a sanitizer has an operator new of its own";
  started_rank rank;
  {
    no_memory_elsewhere none;
    rank = start_rank(client, command("return 0"));
    while (none.refused() == 0)
      std::this_thread::yield();
  }
  if (rank.pid.get())
    rank.end.get();
  EXPECT_EQ(run_rank(client, command("return 3")).code, 3);
}

TEST_P(spawn_many_test, starts_all_at_once_and_reports_how_each_ended) {
  std::vector<started_rank> ranks;
  for (int i = 0; i < GetParam(); ++i)
    ranks.push_back(start_rank(client, command("return " + std::to_string(i))));
  std::set<pid_t> pids;
  for (int i = 0; i < GetParam(); ++i) {
    pids.insert(ranks[i].pid.get().value());
    EXPECT_EQ(ranks[i].end.get(),
              (process_exit{process_exit::kind::exited, i, {}}));
  }
  // A pid may come again only after the end of its process.
  EXPECT_GE(pids.size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(counts, spawn_many_test, testing::Values(1, 8, 64));

TEST_F(spawner_test, reports_the_code_of_exit_and_flushes_stdio) {
  auto pipe = make_pipe();
  auto request = command("exit 3");
  request.output = std::move(pipe.writer);
  auto rank = start_rank(client, std::move(request));
  EXPECT_EQ(read_all(pipe.reader.get()), "printed before exit");
  EXPECT_EQ(to_string(rank.end.get()), "exited with code 3");
}

TEST_F(spawner_test, reports_the_signal_that_killed_a_rank) {
  EXPECT_EQ(to_string(run_rank(client, command("raise 11"))),
            "killed by signal 11 (SIGSEGV)");
  EXPECT_EQ(to_string(run_rank(client, command("raise 6"))),
            "killed by signal 6 (SIGABRT)");
  EXPECT_EQ(to_string(run_rank(client, command("raise 9"))),
            "killed by signal 9 (SIGKILL)");
}

TEST_F(spawner_test,
       distinguishes_an_exception_in_a_thread_from_a_plain_abort) {
  auto end = run_rank(client, command("throw_in_thread row 7"));
  EXPECT_EQ(end.how, process_exit::kind::signaled);
  EXPECT_EQ(end.code, SIGABRT);
  EXPECT_EQ(to_string(end), "ended by an exception in a thread: row 7 "
                            "(std::out_of_range)");
  EXPECT_EQ(to_string(run_rank(client, command("throw_number_in_thread"))),
            "ended by an exception in a thread: a value of type int");
  EXPECT_EQ(to_string(run_rank(client, command("terminate"))),
            "ended by std::terminate without an exception");
}

TEST_F(spawner_test,
       takes_no_termination_message_from_a_process_that_a_rank_forked) {
  EXPECT_EQ(to_string(run_rank(client, command("throw_in_child row 7"))),
            "exited with code 7");
}

TEST_F(spawner_test, hands_descriptors_over_in_their_order) {
  auto first = make_pipe();
  auto second = make_pipe();
  auto request = command("say descriptor ");
  request.descriptors.push_back(std::move(first.writer));
  request.descriptors.push_back(std::move(second.writer));
  auto rank = start_rank(client, std::move(request));
  EXPECT_EQ(read_all(first.reader.get()), "descriptor 0");
  EXPECT_EQ(read_all(second.reader.get()), "descriptor 1");
  rank.end.get();
}

TEST_F(spawner_test, hands_over_a_payload_far_larger_than_a_socket_buffer) {
  std::string payload = "length " + std::string(std::size_t{8} << 20, 'x');
  EXPECT_EQ(answer_of(client, command(payload)), std::to_string(8 << 20));
}

TEST_F(spawner_test, refuses_a_payload_over_its_limit_by_name) {
  auto rank =
    start_rank(client, command(std::string((std::size_t{64} << 20) + 1, 'x')));
  auto pid = rank.pid.get();
  ASSERT_FALSE(pid);
  EXPECT_EQ(pid.error().code, ec::spawn);
  EXPECT_THAT(pid.error().message, HasSubstr("limit of 64 MiB"));
}

TEST_F(spawner_test, sets_the_environment_of_one_rank_only) {
  auto request = command("variable TROUPE_TEST_COLOR");
  request.environment = {{"TROUPE_TEST_COLOR", "green and blue"}};
  EXPECT_EQ(answer_of(client, std::move(request)), "green and blue");
  EXPECT_EQ(answer_of(client, command("variable TROUPE_TEST_COLOR")),
            "(not set)");
}

TEST_F(spawner_test, hides_variables_unless_they_are_requested) {
  auto request = command("variable HOME");
  request.hidden = {"HOME", "TROUPE_TEST_NEVER_SET"};
  EXPECT_EQ(answer_of(client, std::move(request)), "(not set)");
  request = command("variable HOME");
  request.hidden = {"HOME"};
  request.environment = {{"HOME", "elsewhere"}};
  EXPECT_EQ(answer_of(client, std::move(request)), "elsewhere");
}

TEST_F(spawner_test, leaves_nothing_of_a_hidden_variable_in_a_rank) {
  auto home = std::string{"HOME="} + std::getenv("HOME");
  EXPECT_THAT(answer_of(client, command("environ")), HasSubstr(home));
  auto request = command("environ");
  request.hidden = {"H*E"};
  auto environment = answer_of(client, std::move(request));
  EXPECT_THAT(environment, testing::Not(HasSubstr(home)));
  EXPECT_THAT(environment, HasSubstr("PATH=")); // And of no other.
  request = command("environ");
  request.hidden = {"H*E"};
  request.environment = {{"HOME", "asked for"}};
  EXPECT_THAT(answer_of(client, std::move(request)),
              HasSubstr("HOME=asked for"));
}

TEST_F(spawner_test, hides_a_variable_in_constant_memory) {
  auto request = command("environ");
  EXPECT_THAT(answer_of(client, std::move(request)),
              HasSubstr(constant_variable));
  auto pipe = make_pipe();
  request = command("environ");
  request.hidden = {"TROUPE_PROCESS_TEST_CONST*"};
  request.descriptors.push_back(std::move(pipe.writer));
  auto rank = start_rank(client, std::move(request));
  EXPECT_THAT(read_all(pipe.reader.get()),
              testing::Not(HasSubstr(constant_variable)));
  EXPECT_EQ(to_string(rank.end.get()), "exited with code 0");
}

TEST_F(spawner_test, pins_a_rank_to_its_cores) {
  auto core = own_cores().numbers.back();
  auto request = command("cores");
  request.cores = {core};
  EXPECT_EQ(answer_of(client, std::move(request)), std::to_string(core) + " ");
}

TEST_F(spawner_test, starts_a_rank_unpinned_if_its_cores_are_refused) {
  auto pipe = make_pipe();
  auto request = command("return 4");
  request.cores = {1023};
  request.output = std::move(pipe.writer);
  auto rank = start_rank(client, std::move(request));
  EXPECT_THAT(read_all(pipe.reader.get()), HasSubstr("is not pinned"));
  EXPECT_EQ(rank.end.get().code, 4);
}

TEST_F(spawner_test, appends_all_output_of_a_rank_to_its_log) {
  auto path = boost::filesystem::temp_directory_path()
              / boost::filesystem::unique_path("troupe-%%%%%%%%.log");
  for (int i = 0; i < 2; ++i) {
    auto request = command("print hello");
    request.log_path = path.string();
    run_rank(client, std::move(request));
  }
  std::ifstream file{path.string()};
  std::string text{std::istreambuf_iterator<char>{file}, {}};
  std::string once = "hello to stdout\nhello to stderr\nunflushed";
  EXPECT_EQ(text, once + once);
  boost::filesystem::remove(path);
}

TEST_F(spawner_test, names_a_log_that_cannot_be_opened) {
  auto request = command("return 0");
  request.log_path = "/proc/no/such.log";
  auto pid = start_rank(client, std::move(request)).pid.get();
  ASSERT_FALSE(pid);
  EXPECT_EQ(pid.error().code, ec::spawn);
  EXPECT_THAT(pid.error().message, HasSubstr("/proc/no/such.log"));
}

TEST_F(spawner_test, does_not_wait_for_a_pipe_in_the_place_of_a_log) {
  temporary_folder folder;
  auto path = (folder / "rank_1.log").string();
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  unique_fd reader; // Without one the system refuses, with one it takes it.
  for (int i = 0; i < 2; ++i) {
    auto request = command("return 0");
    request.log_path = path;
    auto pid = start_rank(client, std::move(request)).pid.get();
    ASSERT_FALSE(pid);
    EXPECT_EQ(pid.error().code, ec::spawn);
    EXPECT_EQ(pid.error().message,
              "cannot open the log " + path + ": it is not a file");
    auto tee = log_tee::start(path, [](std::string_view) {});
    ASSERT_FALSE(tee);
    EXPECT_EQ(tee.error().message, pid.error().message);
    reader.reset(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  }
  EXPECT_EQ(run_rank(client, command("return 6")).code, 6);
}

TEST_F(spawner_test, leaves_nothing_of_the_spawner_open_in_a_rank) {
  // Standard streams, the memory file for the last words, the rank's own.
  auto open = answer_of(client, command("open_descriptors"));
  auto open_again = answer_of(client, command("open_descriptors"));
  EXPECT_EQ(open, open_again);
  auto waiting = make_pipe();
  auto request = command("wait");
  request.descriptors.push_back(std::move(waiting.reader));
  auto other = start_rank(client, std::move(request));
  ASSERT_TRUE(other.pid.get());
  auto beside_another = answer_of(client, command("open_descriptors"));
  auto count = [](const std::string& x) {
    return std::count(x.begin(), x.end(), ' ');
  };
  EXPECT_EQ(count(open), count(beside_another));
  waiting.writer.reset();
  EXPECT_EQ(other.end.get().code, 0);
}

TEST_F(spawner_test, keeps_ranks_away_from_the_terminal_of_the_program) {
  auto session = answer_of(client, command("session"));
  EXPECT_NE(session, std::to_string(::getsid(0)));
  EXPECT_EQ(session, std::to_string(spawner_of(client)));
}

TEST_F(spawner_test, kills_a_rank_on_request) {
  auto pipe = make_pipe();
  auto request = command("wait");
  request.descriptors.push_back(std::move(pipe.reader));
  auto rank = start_rank(client, std::move(request));
  ASSERT_TRUE(rank.pid.get());
  client.kill(rank.id, SIGQUIT);
  EXPECT_EQ(to_string(rank.end.get()), "killed by signal 3 (SIGQUIT)");
  client.kill(rank.id, SIGQUIT); // Ended: no one gets the signal.
}

TEST_F(spawner_test,
       ends_child_processes_before_it_reports_the_end_of_their_rank) {
  for (auto* way : {"", "session", "orphan"}) {
    auto pipe = make_pipe();
    auto request = command("leave_child " + std::string{way});
    request.descriptors.push_back(std::move(pipe.writer));
    auto rank = start_rank(client, std::move(request));
    std::istringstream said{read_line(pipe.reader.get())};
    pid_t child = 0;
    ASSERT_TRUE(said >> child);
    EXPECT_EQ(rank.end.get().code, 3);
    // Waited for, too.
    EXPECT_FALSE(open_pidfd(child)) << "a child that left by: " << way;
  }
}

TEST_F(spawner_test, leaves_processes_of_a_running_rank_alone) {
  auto started = start_rank_with_child(client, "keep_orphan");
  ASSERT_GT(started.child, 0);
  auto process = open_pidfd(started.child);
  // The end of another rank is when a spawner looks around.
  EXPECT_EQ(run_rank(client, command("return 1")).code, 1);
  EXPECT_FALSE(has_ended(process, 0));
  started.wait.reset();
  started.rank.end.get();
  EXPECT_TRUE(has_ended(process, 0));
}

TEST_F(spawner_test, does_not_start_a_process_that_is_no_longer_wanted) {
  std::vector<started_rank> ranks;
  for (int i = 0; i < 20; ++i) {
    ranks.push_back(start_rank(client, command("sleep")));
    client.kill(ranks.back().id, SIGKILL);
  }
  for (auto& rank : ranks) {
    auto pid = rank.pid.get();
    if (pid)
      EXPECT_EQ(rank.end.get().code, SIGKILL);
    else
      EXPECT_THAT(pid.error().message, HasSubstr("no longer needed"));
  }
}

TEST_F(spawner_test, serves_two_threads_at_once) {
  auto use = [this](int code) {
    for (int i = 0; i < 10; ++i)
      EXPECT_EQ(
        run_rank(client, command("return " + std::to_string(code))).code, code);
  };
  std::thread other{[&] { use(1); }};
  use(2);
  other.join();
}

TEST_F(spawner_test, starts_no_rank_in_another_folder_than_the_wanted_one) {
  auto request = command("return 0");
  request.folder.reset(::open("/proc/self/stat", O_PATH | O_CLOEXEC));
  EXPECT_THAT(to_string(run_rank(client, std::move(request))),
              HasSubstr("could not enter the current folder"));
}

TEST_F(spawner_test, does_not_exist_inside_a_rank) {
  EXPECT_EQ(run_rank(client, command("has_spawner")).code, 0);
}

TEST_F(spawner_test, is_left_alone_by_a_process_that_the_program_forked) {
  auto before = spawner_of(client);
  std::fflush(nullptr); // Else both print it.
  auto status = run_in_child([] {
    auto found = spawner();
    if (found || found.error().code != ec::not_initialized)
      std::abort();
    std::exit(0); // Destroys what is static.
  });
  EXPECT_TRUE(WIFEXITED(status)) << WTERMSIG(status);
  EXPECT_EQ(spawner_of(client), before);
}

TEST_F(spawner_test, can_be_called_again_from_a_callback) {
  std::promise<process_exit> second;
  client.spawn(
    command("return 1"), [](expected<pid_t>) {},
    [&](process_exit) {
      client.spawn(
        command("return 2"), [](expected<pid_t>) {},
        [&](process_exit end) { second.set_value(std::move(end)); });
    });
  EXPECT_EQ(second.get_future().get().code, 2);
}

TEST(spawn_failure_test, names_the_limit_that_is_likely_reached) {
  auto text = [](int code) {
    return spawn_failure("the spawner cannot fork", code).value().message;
  };
  EXPECT_EQ(text(EAGAIN),
            "the spawner cannot fork: Resource temporarily unavailable; the "
            "user probably has as many processes and threads as RLIMIT_NPROC "
            "allows, or a cgroup as many as its pids.max");
  EXPECT_THAT(text(EMFILE), HasSubstr("RLIMIT_NOFILE"));
  EXPECT_EQ(text(ENOMEM), "the spawner cannot fork: Cannot allocate memory");
}
