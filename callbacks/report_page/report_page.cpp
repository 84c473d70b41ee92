#include "troupe/callbacks/report_page/report_page.hpp"

#include "troupe/callbacks/report_page/html_page.hpp"
#include "troupe/callbacks/report_page/page_data.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/append_file.hpp"
#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe::internal {

expected<report_page> report_page::open(const fs::path& run_path) {
  return digest_reader::open(run_path).map(
    [](digest_reader x) { return report_page{std::move(x)}; });
}

expected<std::string> report_page::render(const std::stop_token& cancelled) {
  TROUPE_TRY_VOID(journal_.read(cancelled));
  auto facts = read_run_facts(journal_.path());
  auto& digest = journal_.digest();
  return to_html({facts.name + " – run report", facts.name,
                  summary_line(facts, digest), page_data(facts, digest),
                  false});
}

expected<void> report_page::write(const std::stop_token& cancelled) {
  auto file = journal_.path() / run_layout::report_page;
  return render(cancelled).and_then([&](const std::string& html) {
    return may_write(cancelled, file).and_then([&] {
      return replace_file(file, html, after_power_cut::new_or_old_file);
    });
  });
}

expected<std::string> render_report_page(const fs::path& run_path) {
  return report_page::open(run_path).and_then(
    [](report_page page) { return page.render(); });
}

} // namespace troupe::internal
