// Measures Troupe next to bare programs: troupe_bench --help.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "table.hpp"
#include "tools/command_line.hpp"
#include "troupe/trainers/init.hpp"
#ifdef TROUPE_BENCH_TORCH
#include "first_collective.hpp"
#endif

namespace {

using namespace troupe::internal::bench;

struct options {
  std::string json;
  std::string filter;
};

/// Work of other programs spoils every number here.
void warn_about_load() {
  double load = 0;
  if (::getloadavg(&load, 1) == 1 && load > 0.5)
    std::fprintf(stderr,
                 "troupe_bench: the load average is %.2f before it starts; "
                 "numbers are good on a quiet machine (<= 0.5) only\n",
                 load);
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

int main(int argc, char** argv) {
  [[maybe_unused]] auto is_child = [&](const char* name) {
    return argc == 5 && std::strcmp(argv[1], "--child") == 0
           && std::strcmp(argv[2], name) == 0;
  };
#ifdef TROUPE_BENCH_TORCH
  if (is_child("bare_start"))
    return bare_start_child(argv[3], argv[4]);
#endif
  troupe::init(argc, argv);
#ifdef TROUPE_BENCH_TORCH
  if (is_child("start_cold"))
    return start_cold_child(argv[3], argv[4]);
#endif
  CLI::App app{"Measures Troupe next to bare programs.", "troupe_bench"};
  options wanted;
  app.add_option("--json", wanted.json, "writes the rows to FILE as well")
    ->option_text("FILE");
  app
    .add_option("--filter", wanted.filter,
                "only the rows whose names contain NAME")
    ->option_text("NAME");
  if (auto code = troupe::parse_arguments(app, argc, argv))
    return *code;
  warn_about_load();
  return run(wanted);
}
