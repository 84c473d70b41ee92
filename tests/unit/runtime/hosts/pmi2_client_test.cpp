#include "troupe/runtime/hosts/pmi2_client.hpp"

#include <condition_variable>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "tests/support/mentions.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {
namespace {

using namespace std::chrono_literals;
using test::mentions;

constexpr auto limit = 30s;

/// Serves the tasks of one job as Slurm does, with a thread for each.
class pmi2_server {
public:
  explicit pmi2_server(int size) : size_{size} {}

  ~pmi2_server() {
    for (auto& x : threads_)
      x.join();
  }

  /// The variables of another task.
  environment_map add_task() {
    int ends[2];
    ::socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    auto rank = threads_.size();
    threads_.emplace_back([this, fd = unique_fd{ends[0]}] { serve(fd.get()); });
    return {{"PMI_FD", std::to_string(ends[1])},
            {"PMI_RANK", std::to_string(rank)},
            {"PMI_SIZE", std::to_string(size_)},
            {"PMI_JOBID", "7.0"}};
  }

  std::size_t longest_message() const { return longest_; }

private:
  static std::string read(int fd, std::size_t size) {
    std::string result(size, '\0');
    auto n = ::recv(fd, result.data(), size, MSG_WAITALL);
    result.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return result;
  }

  static void write(int fd, const std::string& text) {
    ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
  }

  static std::string field(const std::string& message,
                           const std::string& name) {
    auto begin = (';' + message).find(';' + name + '=');
    if (begin == message.npos)
      return {};
    begin += name.size() + 1;
    return message.substr(begin, message.find(';', begin) - begin);
  }

  void serve(int fd) {
    std::string line;
    while (!line.ends_with('\n')) {
      auto byte = read(fd, 1);
      if (byte.empty())
        return;
      line += byte;
    }
    write(fd, "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n");
    for (;;) {
      auto head = read(fd, 6);
      if (head.empty())
        return;
      auto message = read(fd, std::stoul(head));
      auto body = answer(message);
      auto length = std::to_string(body.size());
      write(fd, length + std::string(6 - length.size(), ' ') + body);
    }
  }

  std::string answer(const std::string& message) {
    std::unique_lock lock{mutex_};
    longest_ = std::max(longest_, message.size());
    auto command = field(message, "cmd");
    auto result = "cmd=" + command + "-response;rc=0;";
    if (command == "kvs-put") {
      values_[field(message, "key")] = field(message, "value");
    } else if (command == "kvs-fence") {
      auto round = fences_++ / size_;
      changed_.notify_all();
      changed_.wait(lock, [&] { return fences_ / size_ > round; });
    } else if (command == "kvs-get") {
      auto i = values_.find(field(message, "key"));
      result += i == values_.end() ? "found=FALSE;"
                                   : "found=TRUE;value=" + i->second + ';';
    }
    return result;
  }

  int size_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  int fences_ = 0;
  std::size_t longest_ = 0;
};

/// Task 0 sends the others *value*; returns what this task received.
std::string share(pmi2_client& client, const std::string& value) {
  if (client.rank() == 0) {
    EXPECT_TRUE(client.put("driver", value, limit));
  }
  EXPECT_TRUE(client.fence(limit));
  auto result = client.get("driver", limit);
  EXPECT_TRUE(result) << result.error().message;
  EXPECT_TRUE(client.finalize(limit));
  return result.value_or("");
}

TEST(pmi2_client_test, shares_values_between_all_tasks) {
  std::string value;
  for (int i = 0; i < 3000; ++i)
    value += static_cast<char>(i);
  pmi2_server server{3};
  std::vector<environment_map> variables;
  for (int i = 0; i < 3; ++i)
    variables.push_back(server.add_task());
  std::vector<std::string> got(3);
  std::vector<std::thread> tasks;
  for (std::size_t i = 0; i < 3; ++i)
    tasks.emplace_back([&, i] {
      auto client = pmi2_client::connect(variables[i], limit);
      ASSERT_TRUE(client) << client.error().message;
      EXPECT_EQ(client->rank(), static_cast<int>(i));
      EXPECT_EQ(client->size(), 3);
      got[i] = share(*client, value);
    });
  for (auto& x : tasks)
    x.join();
  EXPECT_THAT(got, testing::Each(value));
  EXPECT_LT(server.longest_message(), 1100u);
}

// Runs as a task of `srun --mpi=pmi2`, started by another test.
TEST(pmi2_task_test, shares_a_value_with_the_other_tasks) {
  auto client = pmi2_client::connect(own_environment(), limit);
  if (!client && client.error().code == ec::unsupported)
    GTEST_SKIP() << client.error().message;
  ASSERT_TRUE(client) << client.error().message;
  std::string value(2000, ';');
  EXPECT_EQ(share(*client, value), value);
}

TEST(pmi2_client_test, has_empty_values_but_no_missing_ones) {
  pmi2_server server{1};
  auto client = pmi2_client::connect(server.add_task(), limit);
  ASSERT_TRUE(client);
  EXPECT_TRUE(client->put("empty", "", limit));
  EXPECT_EQ(client->get("empty", limit), "");
  auto missing = client->get("missing", limit);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ec::invalid_argument);
  EXPECT_FALSE(client->put("a;b", "x", limit));
  EXPECT_FALSE(client->put("", "x", limit));
  EXPECT_FALSE(client->put("a", std::string(20'000, 'x'), limit));
}

TEST(pmi2_client_test, refuses_variables_that_can_not_be_of_slurm) {
  auto code_of = [](const environment_map& variables) {
    auto client = pmi2_client::connect(variables, limit);
    return client ? ec::none : client.error().code;
  };
  EXPECT_EQ(code_of({}), ec::unsupported);
  EXPECT_EQ(code_of({{"PMI_FD", "x"}}), ec::protocol);
  EXPECT_EQ(code_of({{"PMI_FD", "99999"}}), ec::protocol);
  EXPECT_EQ(code_of({{"PMI_FD", "0"}}), ec::protocol);
}

TEST(pmi2_client_test, notices_a_server_that_is_gone_silent_or_another_one) {
  auto meet = [](std::string_view answer, bool closes,
                 std::chrono::milliseconds time) {
    int ends[2];
    ::socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    unique_fd server{ends[0]};
    ::send(server.get(), answer.data(), answer.size(), 0);
    if (closes)
      ::shutdown(server.get(), SHUT_RDWR);
    auto client = pmi2_client::connect({{"PMI_FD", std::to_string(ends[1])},
                                        {"PMI_RANK", "0"},
                                        {"PMI_SIZE", "1"}},
                                       time);
    EXPECT_FALSE(client);
    return client ? ec::none : client.error().code;
  };
  constexpr std::string_view hello =
    "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n";
  EXPECT_EQ(meet("", true, limit), ec::protocol);
  EXPECT_EQ(meet("", false, 1ms), ec::timeout);
  EXPECT_EQ(meet(hello, false, 1ms), ec::timeout);
  EXPECT_EQ(meet("cmd=response_to_init pmi_version=1 rc=0\n", false, limit),
            ec::protocol);
  EXPECT_EQ(meet(std::string(2000, 'x'), false, limit), ec::protocol);
  for (auto answer : {"abcdef", "    -1", "     6cmd=x;",
                      "    27cmd=fullinit-response;rc=14;"})
    EXPECT_EQ(meet(concat(hello, answer), false, limit), ec::protocol)
      << answer;
}

} // namespace
} // namespace troupe::internal
