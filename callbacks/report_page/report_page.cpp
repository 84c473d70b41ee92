#include "troupe/callbacks/report_page/report_page.hpp"

#include "troupe/callbacks/report_page/page_assets.hpp"
#include "troupe/callbacks/report_page/page_data.hpp"
#include "troupe/callbacks/report_page/page_text.hpp"
#include "troupe/runtime/storage/append_file.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/store/journal_reader.hpp"
#include "troupe/runtime/store/run_folder.hpp"

namespace troupe::internal {

namespace {

fs::path journal_of(const fs::path& run_path) {
  return run_path / "journal.jsonl";
}

expected<void> expect_journal(const fs::path& run_path) {
  TROUPE_TRY_VOID(expect_run_folder(run_path));
  TROUPE_TRY(auto journal, look_up(journal_of(run_path)));
  if (journal.exists())
    return {};
  return failure(ec::storage, "the run " + run_path.string()
                                + " has lost its journal.jsonl");
}

// The policy forbids every request, and every script but the page's own: should
// a text ever become markup, it can neither run nor call anybody.
constexpr std::string_view head =
  R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-)";

// The script replaces what is in header and main. Until then, and if it fails,
// they are what the reader sees.
constexpr std::string_view body =
  R"(</p>
</header>
<div id="toolbar" role="group" aria-label="Curves" hidden></div>
<main>
<p class="notice undrawn">A script draws the charts and tables of this page. It did not run here: the browser does not let it, or is too old.</p>
</main>
<script type="application/json" id="data">
)";

template <class... Parts>
std::string joined(const Parts&... parts) {
  std::string result;
  (result.append(parts), ...);
  return result;
}

std::string page_of(const run_facts& facts, const journal_digest& digest) {
  auto name = html_text(facts.name);
  auto summary = html_text(summary_line(facts, digest));
  auto data = script_json(page_data(facts, digest));
  return joined(head, page_assets::script_sha256, "'\">\n<title>", name,
                " – run report</title>\n<style>\n", page_assets::style,
                "</style>\n</head>\n<body>\n<header>\n<h1>", name, "</h1>\n<p>",
                summary, body, data, "\n</script>\n<script>",
                page_assets::script, "</script>\n</body>\n</html>\n");
}

} // namespace

expected<report_page> report_page::open(const fs::path& given) {
  TROUPE_TRY(auto path, absolute_path(given));
  if (path.filename() == ".") // "run/" ends in one
    path = path.parent_path();
  TROUPE_TRY_VOID(expect_journal(path));
  return report_page{std::move(path)};
}

expected<void> report_page::read_journal(const std::stop_token& cancelled) {
  TROUPE_TRY(auto found, look_up(journal_of(run_path_)));
  if (found.exists() && found.size < offset_) { // It is another one now.
    offset_ = 0;
    digest_ = {};
  }
  TROUPE_TRY(auto reader, journal_reader::open(journal_of(run_path_), offset_));
  for (;;) {
    if (cancelled.stop_requested())
      return failure(ec::stopped, "no one waits for the report page of "
                                    + run_path_.string());
    auto entry = reader.next();
    offset_ = reader.offset();
    if (entry && !*entry)
      return {};
    if (entry)
      digest_.add(**entry);
    else if (entry.error().code == ec::corrupt)
      digest_.add_damage(entry.error().message);
    else
      return tl::unexpected{entry.error()};
  }
}

expected<std::string> report_page::render(const std::stop_token& cancelled) {
  TROUPE_TRY_VOID(read_journal(cancelled));
  return page_of(read_run_facts(run_path_), digest_);
}

expected<void> report_page::write(const std::stop_token& cancelled) {
  auto file = run_path_ / "report.html";
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
