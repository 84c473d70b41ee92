#include <memory>

#include "tools/troupe/verbs.hpp"
#include "troupe/callbacks/report_page/report_page.hpp"
#include "troupe/runtime/run_layout.hpp"

// troupe report: the page of a run.

namespace troupe::tool {

using namespace internal;

namespace {

expected<int> report(const run_arguments& x, const std::string& given) {
  TROUPE_TRY(auto path, x.path());
  TROUPE_TRY(auto html, render_report_page(path));
  auto output =
    given.empty() ? path / run_layout::report_page : fs::path{given};
  std::optional<json_object> details;
  if (x.json)
    details.emplace();
  TROUPE_TRY_VOID(put_page(html, output, std::move(details)));
  return done;
}

} // namespace

verb report_verb() {
  return {"report",
          "Makes the page of a run, which may be under way, ended or lost: "
          "curves,\ncheckpoints, config, environment, times and last log lines "
          "in one HTML file.",
          [](CLI::App& app) -> action {
            auto x = add_run_arguments(app);
            auto output = std::make_shared<std::string>();
            app
              .add_option("-o,--output", *output,
                          "where to put the page (default: report.html in the\n"
                          "run's folder); - prints it")
              ->option_text("FILE")
              ->check(not_empty);
            return [x, output] { return report(*x, *output); };
          }};
}

} // namespace troupe::tool
