#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/host_tools.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/config/run_config.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/start_program.hpp"
#include "troupe/runtime/store/journal_reader.hpp"
#include "troupe/runtime/store/result.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal::test {

/// Writes one line to the test.
inline void tell(const std::string& folder, const std::string& line) {
  unique_fd pipe{::open((folder + "/events").c_str(), O_WRONLY | O_CLOEXEC)};
  auto text = line + '\n';
  if (::write(pipe.get(), text.data(), text.size())
      != static_cast<ssize_t>(text.size()))
    std::abort();
}

inline pid_t parent_of(pid_t pid) {
  std::ifstream in{concat("/proc/", pid, "/status")};
  for (std::string word; in >> word;)
    if (word == "PPid:" && in >> pid)
      return pid;
  return -1;
}

inline std::string own_host() {
  char name[256] = {};
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

/// A file that is locked for as long as the rank lives.
inline std::string life_of(const std::string& folder, int attempt, int rank) {
  return concat(folder, "/life_", attempt, '_', rank);
}

/// Locks that file until this process ends.
inline void hold_life(const std::string& folder, int attempt, int rank) {
  auto life = ::open(life_of(folder, attempt, rank).c_str(),
                     O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ::flock(life, LOCK_EX);
}

/// The run of a driver in *folder*, to which agents come with its ticket.
inline run_config run_with_agents(const std::string& folder) {
  run_config result;
  result.name = "run";
  result.storage_path = folder + "/storage";
  result.agent_ticket = folder + "/ticket";
  result.quiet = true;
  return result;
}

/// Writes the line that `hosts_test::result_line` takes.
inline void tell_result(const std::string& folder, const result& outcome) {
  auto text = outcome.error ? outcome.error->message : std::string{};
  std::ranges::replace(text, '\n', ' ');
  tell(folder, concat("result ", to_string(outcome.status), ' ',
                      outcome.attempts, ' ', text));
}

/// A program that the test started.
struct program {
  pid_t pid = -1;

  /// Waits for its end; returns its exit code, or minus the signal.
  int wait() {
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    pid = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
};

/// Whether the hosts are namespaces.
enum class where { here, namespaces };

/// Drivers and agents are processes of the test's program, on one machine or on
/// hosts that are namespaces. They write lines to the test.
class hosts_test : public testing::TestWithParam<where> {
protected:
  void SetUp() override {
    for (auto name : {"events", "go"})
      ASSERT_EQ(::mkfifo((folder_ / name).c_str(), 0600), 0);
    events_ =
      unique_fd{::open((folder_ / "events").c_str(), O_RDWR | O_CLOEXEC)};
    fs::create_directory(folder_ / "storage");
    if (GetParam() == where::namespaces)
      bring_up_hosts();
  }

  void TearDown() override {
    for (auto& x : started_)
      if (x->pid > 0) {
        ::kill(x->pid, SIGKILL);
        x->wait();
      }
    if (are_up_) {
      EXPECT_EQ(std::system((tool_ + " down").c_str()), 0);
    }
    ::unsetenv("TROUPE_HOSTS");
  }

  void bring_up_hosts() {
    TROUPE_NEEDS_HOSTS();
    tool_ = host_tools() + "/hosts.sh";
    ::setenv("TROUPE_HOSTS", (folder_ / "hosts").c_str(), 1);
    are_up_ = true;
    // Not through a pipe, which what is left on the hosts would hold open.
    auto said = (folder_ / "hosts.log").string();
    if (std::system((tool_ + " up 3 >" + said + " 2>&1").c_str()) != 0)
      FAIL() << "hosts.sh cannot make hosts: " << bytes_of(said);
  }

  /// Starts *command* on the host number *host*.
  std::shared_ptr<program> start(int host, std::vector<std::string> command) {
    if (GetParam() == where::namespaces)
      command.insert(command.begin(), {tool_, "run", concat('h', host + 1)});
    auto file = command.front();
    auto made = start_program(
      {file, std::move(command), std::nullopt, {{0, 0}, {1, 1}, {2, 2}}},
      "the test's program");
    EXPECT_TRUE(made) << made.error().message;
    auto result = std::make_shared<program>();
    result->pid = made ? made->pid : -1;
    started_.push_back(result);
    return result;
  }

  std::shared_ptr<program> start_agent(int host, std::string path = {}) {
    if (path.empty())
      path = own_program();
    return start(host, {"/usr/bin/env",
                        "TROUPE_TICKET=" + (folder_ / "ticket").string(),
                        std::move(path), "--node-agent"});
  }

  /// Sends *signal* to *pid*, as processes on *host* know it.
  void kill(int host, pid_t pid, const char* signal = "-KILL") {
    EXPECT_EQ(start(host, {"/bin/kill", signal, std::to_string(pid)})->wait(),
              0);
  }

  static std::string own_program() {
    return fs::canonical("/proc/self/exe").string();
  }

  /// The next line of the driver or of a rank.
  std::string next_line() {
    std::string line;
    for (char c = 0;;) {
      pollfd ready{events_.get(), POLLIN, 0};
      if (::poll(&ready, 1, 100'000) <= 0 || ::read(events_.get(), &c, 1) != 1)
        throw std::runtime_error{"no event"};
      if (c == '\n')
        return line;
      line += c;
    }
  }

  std::string result_line() {
    for (;;)
      if (auto line = next_line(); line.starts_with("result "))
        return line;
  }

  /// Takes lines until all *ranks* of *attempt* have introduced themselves by
  /// `rank <attempt> <rank> <Rank>` and, if there is a *word*, have sent
  /// `<word> <attempt> ...`.
  template <class Rank>
  std::map<int, Rank> introduced(int attempt, int ranks,
                                 const std::string& word = {}) {
    std::map<int, Rank> result;
    for (auto words = word.empty() ? 0 : ranks;
         static_cast<int>(result.size()) < ranks || words > 0;) {
      auto text = next_line();
      std::istringstream line{text};
      std::string what;
      int number = -1, rank = -1;
      line >> what >> number >> rank;
      if (what == "result")
        throw std::runtime_error{text};
      if (number != attempt)
        continue;
      if (what == "rank")
        line >> result[rank];
      else if (what == word)
        --words;
    }
    return result;
  }

  /// Waits until *rank* of *attempt* has ended, on whatever host.
  void await_end(int attempt, int rank) {
    unique_fd life{
      ::open(life_of(folder_.path().string(), attempt, rank).c_str(),
             O_RDWR | O_CLOEXEC)};
    ASSERT_TRUE(life);
    EXPECT_EQ(::flock(life.get(), LOCK_EX), 0);
  }

  fs::path journal_path() const {
    return folder_ / "storage/run/journal.jsonl";
  }

  std::string journal() const { return bytes_of(journal_path()); }

  /// All reports in the journal.
  std::vector<journaled_batch> batches() const {
    std::vector<journaled_batch> result;
    auto reader = journal_reader::open(journal_path()).value();
    while (auto entry = reader.next().value())
      if (auto batch = std::get_if<journaled_batch>(&*entry))
        result.push_back(std::move(*batch));
    return result;
  }

  temporary_folder folder_;
  unique_fd events_;
  std::string tool_;
  bool are_up_ = false;
  std::vector<std::shared_ptr<program>> started_;
};

/// For the names of tests.
inline std::string name_of(const testing::TestParamInfo<where>& x) {
  return x.param == where::here ? "on_one_machine" : "as_namespaces";
}

} // namespace troupe::internal::test
