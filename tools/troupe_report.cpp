// Makes the page of a run: troupe-report <run folder> [--output FILE].

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "troupe/callbacks/report_page/report_page.hpp"
#include "troupe/runtime/storage/durable_file.hpp"

namespace {

constexpr auto usage =
  R"(usage: troupe-report RUN_FOLDER [--output FILE]

Makes the page of a run that goes on, has ended or was lost: curves, checkpoints,
config, environment, times and last log lines in one HTML file.

  RUN_FOLDER        the folder <storage>/<run name>
  --output FILE     where to put the page (default: RUN_FOLDER/report.html);
                    - prints it
  --help            this text

Exit codes: 0 the page was written, 1 it could not be, 2 wrong arguments.
)";

struct arguments {
  std::string run;
  std::string output; ///< Empty: the run's own page.
  bool help = false;
};

troupe::expected<arguments> parse(int argc, char** argv) {
  using troupe::ec;
  arguments result;
  for (int i = 1; i < argc; ++i) {
    std::string_view x = argv[i];
    if (x == "--help" || x == "-h") {
      result.help = true;
      return result;
    }
    if (x == "--output" || x == "-o") {
      if (++i == argc || *argv[i] == '\0')
        return troupe::failure(ec::invalid_argument, "--output needs a file");
      result.output = argv[i];
    } else if (x.starts_with('-')) {
      return troupe::failure(ec::invalid_argument,
                             "there is no option " + std::string{x});
    } else if (!result.run.empty()) {
      return troupe::failure(ec::invalid_argument,
                             "one run folder at a time, not " + result.run
                               + " and " + std::string{x});
    } else {
      result.run = x;
    }
  }
  if (result.run.empty())
    return troupe::failure(ec::invalid_argument, "no run folder is given");
  return result;
}

/// Puts the page where it belongs; what to print.
troupe::expected<std::string> make_page(const arguments& x) {
  auto output = x.output.empty() ? troupe::fs::path{x.run} / "report.html"
                                 : troupe::fs::path{x.output};
  auto page = troupe::render_report_page(x.run);
  if (x.output == "-")
    return page;
  return page
    .and_then([&](const std::string& html) {
      return troupe::absolute_path(output).and_then(
        [&](const troupe::fs::path& x) {
          return troupe::replace_file(x, html);
        });
    })
    .map([&] { return output.string() + '\n'; });
}

} // namespace

int main(int argc, char** argv) {
  auto parsed = parse(argc, argv);
  if (!parsed) {
    std::fprintf(stderr, "troupe-report: %s\n\n%s",
                 parsed.error().message.c_str(), usage);
    return 2;
  }
  if (parsed->help) {
    std::fputs(usage, stdout);
    return 0;
  }
  auto written = make_page(*parsed);
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
