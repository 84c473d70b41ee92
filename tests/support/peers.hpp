#pragma once

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include "tests/support/peer_process.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe::internal::test {

/// The folder of the programs of the real trackers (python, mlflow,
/// tensorboard, wandb, comet), installed by the bootstrap
/// (TROUPE_PEERS_PYTHON).
inline std::optional<fs::path> peer_programs() {
  const auto* python = std::getenv("TROUPE_PEERS_PYTHON");
  if (python && *python)
    return fs::path{python}.parent_path();
  return std::nullopt;
}

/// The full path of the peer's program *name*.
inline std::string peer_program(const std::string& name) {
  return (peer_programs().value() / name).string();
}

/// Whether missing peers are a failure instead of a reason to skip.
inline bool peers_are_required() {
  const auto* ci = std::getenv("CI");
  return ci && std::string_view{ci} == "true";
}

/// The environment of a peer's program: the test's own without any tracker's
/// variable, with a scratch home, and with the peers' requests to the internet
/// turned off.
inline std::map<std::string, std::string>
peer_environment(const fs::path& home,
                 const std::map<std::string, std::string>& more = {}) {
  static constexpr std::array trackers{"MLFLOW_",     "WANDB_", "COMET_",
                                       "DATABRICKS_", "XDG_",   "PYTHON"};
  std::map<std::string, std::string> result;
  for (auto** x = ::environ; *x; ++x) {
    const std::string_view line{*x};
    auto is_of = [&](const char* prefix) { return line.starts_with(prefix); };
    auto equals = line.find('=');
    if (equals != line.npos && std::ranges::none_of(trackers, is_of))
      result.emplace(line.substr(0, equals), line.substr(equals + 1));
  }
  result["HOME"] = home.string();
  result["MLFLOW_DISABLE_TELEMETRY"] = "true";
  result["DO_NOT_TRACK"] = "true";
  result["WANDB_ERROR_REPORTING"] = "false";
  result["PYTHONUNBUFFERED"] = "1";
  result["PATH"] = peer_programs().value().string() + ":" + result["PATH"];
  for (const auto& [name, value] : more)
    result[name] = value;
  return result;
}

struct peer_result {
  int exit_code = -1; ///< -1: ended by a signal.
  std::string output; ///< Of both streams.
};

/// Runs a peer's program to its end; *command* begins with its name.
inline peer_result
run_peer(std::vector<std::string> command,
         const std::map<std::string, std::string>& environment = {}) {
  temporary_folder home;
  command.front() = peer_program(command.front());
  peer_process process{command, peer_environment(home.path(), environment),
                       home / "output"};
  auto code = process.wait();
  return {code, bytes_of(home / "output")};
}

/// Runs a Python script with the peers' packages.
inline peer_result
run_peer_script(const std::string& script,
                const std::vector<std::string>& arguments = {},
                const std::map<std::string, std::string>& environment = {}) {
  temporary_folder folder;
  write_bytes(folder / "script.py", script);
  std::vector<std::string> command{"python", (folder / "script.py").string()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run_peer(command, environment);
}

} // namespace troupe::internal::test

/// Skips a test, or fails it in CI, if its peers are missing.
#define TROUPE_NEEDS_PEERS()                                                   \
  do {                                                                         \
    if (!troupe::internal::test::peer_programs()) {                            \
      if (troupe::internal::test::peers_are_required())                        \
        FAIL() << "TROUPE_PEERS_PYTHON is not set: run ./dev test";            \
      GTEST_SKIP() << "TROUPE_PEERS_PYTHON is not set: run ./dev test with "   \
                      "network once";                                          \
    }                                                                          \
  } while (false)
