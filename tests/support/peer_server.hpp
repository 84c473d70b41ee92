#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/http_get.hpp"
#include "tests/support/peers.hpp"

namespace troupe::internal::test {

struct peer_server_options {
  /// Begins with a program's name; `{port}` stands for the port, `{home}` for
  /// the server's scratch folder.
  std::vector<std::string> command;
  std::map<std::string, std::string> environment; ///< `{home}` as above.
  std::string ready_path = "/health"; ///< Answers 200 once the server is ready.
  std::chrono::seconds limit{180}; ///< For becoming ready, on a busy machine.
};

/// A real tracker's server on a free port of 127.0.0.1, in a scratch home.
///
/// Throws if it does not become ready. Start it from the main thread: it ends
/// with the thread that started it.
class peer_server {
public:
  explicit peer_server(peer_server_options options)
    : options_(std::move(options)) {
    // Someone else may take the port meanwhile.
    for (int tries = 0; tries < 3; ++tries) {
      port_ = free_port();
      remove_files(); // MLflow cannot use a database that it made only in part.
      if (try_to_start())
        return;
    }
    throw std::runtime_error{"the server did not start: " + log()};
  }

  int port() const noexcept { return port_; }

  std::string url() const {
    return "http://127.0.0.1:" + std::to_string(port_);
  }

  const fs::path& home() const noexcept { return home_.path(); }

  std::string log() const { return bytes_of(home_ / "server.log"); }

  /// Sends SIGKILL to all its processes.
  void kill() { process_->kill(); }

  /// Starts it again with the same port and files.
  void restart() {
    process_.reset();
    if (!try_to_start())
      throw std::runtime_error{"the server did not start again: " + log()};
  }

private:
  std::string filled(std::string x) const {
    auto replace = [&](const std::string& what, const std::string& by) {
      for (auto i = x.find(what); i != x.npos; i = x.find(what, i + by.size()))
        x.replace(i, what.size(), by);
    };
    replace("{port}", std::to_string(port_));
    replace("{home}", home_.path().string());
    return x;
  }

  void remove_files() {
    process_.reset();
    for (fs::directory_iterator x{home_.path()}, end; x != end; ++x)
      if (x->path() != home_ / "server.log")
        fs::remove_all(x->path());
  }

  bool try_to_start() {
    std::vector<std::string> command;
    for (const auto& x : options_.command)
      command.push_back(filled(x));
    command.front() = peer_program(command.front());
    std::map<std::string, std::string> environment;
    for (const auto& [name, value] : options_.environment)
      environment[name] = filled(value);
    process_ = std::make_unique<peer_process>(
      command, peer_environment(home_.path(), environment),
      home_ / "server.log");
    auto limit = std::chrono::steady_clock::now() + options_.limit;
    while (std::chrono::steady_clock::now() < limit) {
      if (process_->ends_within(std::chrono::milliseconds{50}))
        return false;
      if (auto reply = http_get(port_, options_.ready_path);
          reply && reply->status == 200)
        return true;
    }
    return false;
  }

  peer_server_options options_;
  temporary_folder home_;
  int port_ = 0;
  std::unique_ptr<peer_process> process_;
};

} // namespace troupe::internal::test
