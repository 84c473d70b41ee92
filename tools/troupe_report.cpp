// Makes the page of a run: troupe-report <run folder> [--output FILE].

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "tools/command_line.hpp"
#include "troupe/callbacks/report_page/report_page.hpp"
#include "troupe/runtime/storage/durable_file.hpp"

namespace {

struct arguments {
  std::string run;
  std::string output; ///< Empty: the run's own page.
};

/// Puts the page where it belongs; what to print.
troupe::expected<std::string> make_page(const arguments& x) {
  auto output = x.output.empty() ? troupe::fs::path{x.run} / "report.html"
                                 : troupe::fs::path{x.output};
  auto page = troupe::internal::render_report_page(x.run);
  if (x.output == "-")
    return page;
  return page
    .and_then([&](const std::string& html) {
      return troupe::internal::absolute_path(output).and_then(
        [&](const troupe::fs::path& x) {
          return troupe::internal::replace_file(x, html);
        });
    })
    .map([&] { return output.string() + '\n'; });
}

} // namespace

int main(int argc, char** argv) {
  CLI::App app{
    "Makes the page of a run that is under way, has ended or was lost: "
    "curves,\n"
    "checkpoints, config, environment, times and last log lines in one HTML "
    "file.\n",
    "troupe-report"};
  arguments given;
  app.add_option("RUN_FOLDER", given.run, "the folder <storage>/<run name>")
    ->option_text(" ")
    ->required()
    ->check(troupe::not_empty);
  app
    .add_option("-o,--output", given.output,
                "where to put the page (default: RUN_FOLDER/report.html);\n"
                "- prints it")
    ->option_text("FILE")
    ->check(troupe::not_empty);
  app.footer("Exit codes: 0 the page was written, 1 it could not be, 2 wrong "
             "arguments.");
  if (auto code = troupe::parse_arguments(app, argc, argv))
    return *code;
  auto written = make_page(given);
  if (!written) {
    std::fprintf(stderr, "troupe-report: %s\n",
                 written.error().message.c_str());
    return 1;
  }
  if (std::fwrite(written->data(), 1, written->size(), stdout)
        != written->size()
      || std::fflush(stdout) != 0) {
    std::fprintf(stderr, "troupe-report: write: %s\n", std::strerror(errno));
    return 1;
  }
  return 0;
}
