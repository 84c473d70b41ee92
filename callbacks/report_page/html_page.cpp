#include "troupe/callbacks/report_page/html_page.hpp"

#include "troupe/callbacks/report_page/page_text.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

// The policy forbids every request, and every script but the page's own: should
// a text ever become markup, it can neither run nor send anything.
constexpr std::string_view page_head =
  R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-)";

// The script replaces what is in header and main. Until then, and if it fails,
// they are what the reader sees.
constexpr std::string_view page_body =
  R"(</p>
</header>
<div id="toolbar" role="group" aria-label="Curves" hidden></div>
<main>
<p class="notice undrawn">A script draws the charts and tables of this page. It did not run here: the browser does not let it, or is too old.</p>
</main>
<script type="application/json" id="data">
)";

} // namespace

std::string to_html(const html_page& x) {
  return concat(page_head, page_assets::script_sha256,
                x.is_served ? "'; connect-src 'self" : "", "'\">\n<title>",
                html_text(x.title), "</title>\n<style>\n", page_assets::style,
                "</style>\n</head>\n<body>\n<header>\n<h1>",
                html_text(x.heading), "</h1>\n<p>", html_text(x.summary),
                page_body, script_json(x.data), "\n</script>\n<script>",
                page_assets::script, "</script>\n</body>\n</html>\n");
}

} // namespace troupe::internal
