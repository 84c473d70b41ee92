#pragma once

#include <cstdlib>
#include <optional>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include "tests/support/peer_process.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe::internal::test {

/// Debian's Chromium, or the program that TROUPE_CHROMIUM names.
inline std::optional<std::string> chromium_program() {
  const auto* given = std::getenv("TROUPE_CHROMIUM");
  if (given && *given)
    return given;
  const auto* path = std::getenv("PATH");
  std::istringstream folders{path ? path : ""};
  for (std::string folder; std::getline(folders, folder, ':');)
    if (auto file = folder + "/chromium"; ::access(file.c_str(), X_OK) == 0)
      return file;
  return std::nullopt;
}

/// Whether a missing browser is a failure instead of a reason to skip.
inline bool chromium_is_required() {
  const auto* ci = std::getenv("CI");
  return ci && std::string_view{ci} == "true";
}

struct chromium_options {
  int width = 1360; ///< Pixels; at least 500.
  int height = 1000;
  bool dark = false;   ///< The system's preferred color scheme.
  fs::path screenshot; ///< Where to store a PNG; empty: nowhere.
};

struct chromium_page {
  int exit_code = -1;
  std::string dom;     ///< The document after its scripts have run.
  std::string console; ///< The page's console output and errors.
  /// Origins to which a request was made, except for the browser's own
  /// services.
  std::vector<std::string> requests;
};

/// Opens the HTML file *page* in headless Chromium, in which no host name has
/// an address.
inline chromium_page open_in_chromium(const fs::path& page,
                                      const chromium_options& options = {}) {
  temporary_folder folder;
  auto quoted = [](const fs::path& x) { return "'" + x.string() + "'"; };
  auto command =
    "exec '" + chromium_program().value()
    + "' --headless --no-sandbox --disable-gpu --no-first-run --dump-dom"
      " --hide-scrollbars --virtual-time-budget=10000 --enable-logging=stderr"
      " --disable-background-networking --disable-component-update"
      " --disable-dev-shm-usage --allow-file-access-from-files"
      " '--host-resolver-rules=MAP * ~NOTFOUND'"
      " --user-data-dir="
    + quoted(folder / "profile")
    + " --log-net-log=" + quoted(folder / "requests.json") + " --window-size="
    + std::to_string(options.width) + "," + std::to_string(options.height);
  if (options.dark)
    command += " --force-dark-mode";
  if (!options.screenshot.empty())
    command += " --screenshot=" + quoted(options.screenshot);
  command += " " + quoted("file://" + page.string()) + " >dom.html 2>log.txt";
  std::map<std::string, std::string> environment{
    {"HOME", folder.path().string()}, {"PATH", std::getenv("PATH")}};
  peer_process browser{
    {"/bin/sh", "-c", command}, environment, folder / "shell.txt"};
  chromium_page result;
  result.exit_code = browser.wait();
  result.dom = bytes_of(folder / "dom.html");
  std::istringstream log{bytes_of(folder / "log.txt")};
  for (std::string line; std::getline(log, line);)
    if (line.find("CONSOLE") != line.npos)
      result.console += line + '\n';
  auto requests = bytes_of(folder / "requests.json");
  const std::regex initiator{R"re("initiator":"([^"]*)")re"};
  for (std::sregex_iterator i{requests.begin(), requests.end(), initiator}, end;
       i != end; ++i)
    if ((*i)[1] != "not an origin")
      result.requests.push_back((*i)[1]);
  return result;
}

} // namespace troupe::internal::test

/// Skips a test, or fails it in CI, if there is no browser.
#define TROUPE_NEEDS_CHROMIUM()                                                \
  do {                                                                         \
    if (!troupe::internal::test::chromium_program()) {                         \
      if (troupe::internal::test::chromium_is_required())                      \
        FAIL() << "there is no chromium on PATH: run ./dev test";              \
      GTEST_SKIP() << "there is no chromium on PATH and TROUPE_CHROMIUM is "   \
                      "not set: run ./dev test";                               \
    }                                                                          \
  } while (false)
