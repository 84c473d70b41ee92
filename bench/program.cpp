#include "program.hpp"

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "table.hpp"
#include "tools/command_line.hpp"

namespace troupe::internal::bench {

namespace {

struct options {
  std::string json;
  std::string filter;
};

/// Work of other programs spoils every number here.
void warn_about_load(const std::string& name) {
  double load = 0;
  if (::getloadavg(&load, 1) == 1 && load > 0.5)
    std::fprintf(stderr,
                 "%s: the load average is %.2f before it starts; numbers are "
                 "good on a quiet machine (<= 0.5) only\n",
                 name.c_str(), load);
}

int run(const options& wanted) {
  auto complete = true;
  std::vector<row> rows;
  workplace place;
  print_head();
  for (auto& what : measurements()) {
    if (what.name.find(wanted.filter) == std::string::npos)
      continue;
    try {
      rows.emplace_back(what, what.take(place));
      print_row(rows.back());
    } catch (const skipped& e) {
      std::printf("%s: skipped, %s\n", what.name.c_str(), e.what());
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s failed: %s\n", what.name.c_str(), e.what());
      complete = false;
    }
  }
  if (!wanted.json.empty()
      && !(std::ofstream{wanted.json} << to_json(rows)).flush()) {
    std::fprintf(stderr, "cannot write %s\n", wanted.json.c_str());
    complete = false;
  }
  return complete ? 0 : 1;
}

} // namespace

int run_program(int argc, char** argv, const std::string& name) {
  CLI::App app{"Measures Troupe next to bare programs.", name};
  options wanted;
  app.add_option("--json", wanted.json, "writes the rows to FILE as well")
    ->option_text("FILE");
  app
    .add_option("--filter", wanted.filter,
                "only the rows whose names contain NAME")
    ->option_text("NAME");
  if (auto code = troupe::parse_arguments(app, argc, argv))
    return *code;
  warn_about_load(name);
  return run(wanted);
}

} // namespace troupe::internal::bench
