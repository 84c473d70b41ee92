#pragma once

#include <cstdio>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

// Command lines of our own programs. Examples have a smaller one, without a
// library: see docs/decisions/dependencies.md.

namespace troupe {

/// Exit code of a program that was called with wrong arguments.
inline constexpr int wrong_arguments = 2;

/// Prints what is wrong with the arguments of *program*, and where to read
/// more.
inline int refuse_arguments(const std::string& program,
                            const std::string& why) {
  std::fprintf(stderr, "%s: %s\n%s --help lists the arguments\n",
               program.c_str(), why.c_str(), program.c_str());
  return wrong_arguments;
}

/// Returns the exit code if the program is to end: after `--help` or a wrong
/// argument.
inline std::optional<int> parse_arguments(CLI::App& app, int argc,
                                          char** argv) {
  try {
    app.parse(argc, argv);
    return {};
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return 0;
  } catch (const CLI::ParseError& e) {
    return refuse_arguments(app.get_name(), e.what());
  }
}

/// A text that is not empty.
inline const CLI::Validator not_empty{[](const std::string& x) {
                                        return std::string{
                                          x.empty() ? "needs a value" : ""};
                                      },
                                      ""};

} // namespace troupe
