#pragma once

#include <future>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "troupe/runtime/process/spawner_connection.hpp"

namespace troupe::internal::test {

/// A request under way, as futures.
struct started_rank {
  spawner_connection::process_id id = 0;
  std::future<expected<pid_t>> pid;
  std::future<process_exit> end;
};

inline started_rank start_rank(spawner_connection& client,
                               spawn_request request) {
  auto started = std::make_shared<std::promise<expected<pid_t>>>();
  auto ended = std::make_shared<std::promise<process_exit>>();
  started_rank result{0, started->get_future(), ended->get_future()};
  result.id = client.spawn(
    std::move(request),
    [started](expected<pid_t> pid) { started->set_value(std::move(pid)); },
    [ended](process_exit end) { ended->set_value(std::move(end)); });
  return result;
}

inline spawn_request command(std::string payload) {
  spawn_request request;
  request.payload = std::move(payload);
  return request;
}

/// How a rank with *request* ends.
inline process_exit run_rank(spawner_connection& client,
                             spawn_request request) {
  return start_rank(client, std::move(request)).end.get();
}

struct pipe_ends {
  unique_fd reader;
  unique_fd writer;
};

inline pipe_ends make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    std::abort();
  return {unique_fd{ends[0]}, unique_fd{ends[1]}};
}

inline std::string read_line(int fd) {
  std::string result;
  for (char byte = 0; ::read(fd, &byte, 1) == 1 && byte != '\n';)
    result += byte;
  return result;
}

/// A rank that has started a child process, and waits until `wait` is closed.
struct rank_with_child {
  started_rank rank;
  unique_fd wait;
  pid_t child = 0; ///< 0: the rank did not name it.
};

/// Starts a rank whose *payload* is "keep_child" or "keep_orphan".
inline rank_with_child start_rank_with_child(spawner_connection& client,
                                             std::string payload) {
  auto pipe = make_pipe();
  auto wait = make_pipe();
  auto request = command(std::move(payload));
  request.descriptors.push_back(std::move(pipe.writer));
  request.descriptors.push_back(std::move(wait.reader));
  rank_with_child result{start_rank(client, std::move(request)),
                         std::move(wait.writer)};
  std::istringstream{read_line(pipe.reader.get())} >> result.child;
  return result;
}

/// Everything from *fd* until no writer is left.
inline std::string read_all(int fd) {
  std::string result;
  char bytes[4096];
  for (ssize_t n = 0; (n = ::read(fd, bytes, sizeof(bytes))) > 0;)
    result.append(bytes, static_cast<std::size_t>(n));
  return result;
}

/// What a rank says through its first descriptor.
inline std::string answer_of(spawner_connection& client,
                             spawn_request request) {
  auto pipe = make_pipe();
  request.descriptors.push_back(std::move(pipe.writer));
  auto rank = start_rank(client, std::move(request));
  auto answer = read_all(pipe.reader.get());
  rank.end.get();
  return answer;
}

/// The process id of the spawner that starts ranks now.
inline pid_t spawner_of(spawner_connection& client) {
  return std::stoi(answer_of(client, command("parent")));
}

} // namespace troupe::internal::test
