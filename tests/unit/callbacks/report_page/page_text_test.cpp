#include "troupe/callbacks/report_page/page_text.hpp"

#include <limits>

#include <gtest/gtest.h>

namespace troupe::internal {

TEST(page_text_test, markup_in_a_text_is_escaped) {
  EXPECT_EQ(html_text(R"(<b a="1" c='2'>&</b>)"),
            "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;&lt;/b&gt;");
  EXPECT_EQ(html_text("\xff"), "\xEF\xBF\xBD");
}

TEST(page_text_test, what_is_not_utf8_becomes_a_replacement_character) {
  EXPECT_EQ(clean_text("a\xff z"), "a\xEF\xBF\xBD z");
  EXPECT_EQ(clean_text("\xE2\x82"), "\xEF\xBF\xBD"); // a euro sign cut short
  EXPECT_EQ(clean_text("größe €"), "größe €");
}

TEST(page_text_test, control_characters_do_not_get_through) {
  using namespace std::string_view_literals;
  EXPECT_EQ(clean_text("a\0b\tc\nd"sv), "a\xEF\xBF\xBD"
                                        "b\tc\nd");
  EXPECT_EQ(clean_text("\x1b\x7f"sv), "\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(page_text_test, a_text_is_cut_between_two_characters) {
  EXPECT_EQ(shortened("größe", 10), "größe");
  EXPECT_EQ(shortened("größe", 3), "gr …");
  EXPECT_EQ(shortened("größe", 4), "grö …");
}

TEST(page_text_test, a_text_in_the_script_cannot_end_it) {
  std::string json;
  append_text(json, "</script><!--\"\\<\xff");
  EXPECT_EQ(script_json(json),
            "\"\\u003c/script>\\u003c!--\\\"\\\\\\u003c\xEF\xBF\xBD\"");
  EXPECT_EQ(script_json("[1]"), "[1]");
}

TEST(page_text_test, colors_titles_and_links_of_terminals_are_dropped) {
  EXPECT_EQ(without_terminal_codes("\x1b[1;32mgreen\x1b[0m"), "green");
  EXPECT_EQ(without_terminal_codes("\x1b]0;title\aafter"), "after");
  EXPECT_EQ(without_terminal_codes("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\"),
            "link");
  EXPECT_EQ(without_terminal_codes("\x1b[2K\x1b(Bx"), "Bx");
}

TEST(page_text_test, a_broken_escape_sequence_hides_no_more_than_itself) {
  EXPECT_EQ(without_terminal_codes("a\x1b"), "a");
  EXPECT_EQ(without_terminal_codes("a\x1b["), "a");
  EXPECT_EQ(without_terminal_codes("\x1b]no end\nnext"), "\nnext");
  EXPECT_EQ(without_terminal_codes("\x1b[31\nnext"), "\nnext");
}

TEST(page_text_test, of_a_line_that_was_overwritten_the_last_version_stays) {
  EXPECT_EQ(without_terminal_codes("10%\r50%\r100%\ndone\n"), "100%\ndone\n");
  EXPECT_EQ(without_terminal_codes("kept\r\n"), "kept\n");
  EXPECT_EQ(without_terminal_codes("kept\r"), "kept");
  EXPECT_EQ(without_terminal_codes("ab\b\b\bc"), "c");
}

TEST(page_text_test, numbers_are_short_and_never_break_json) {
  auto text = [](double x, int digits = 6) {
    std::string result;
    append_number(result, x, digits);
    return result;
  };
  EXPECT_EQ(text(0.1 + 0.2), "0.3");
  EXPECT_EQ(text(1234567), "1.23457e+06");
  EXPECT_EQ(text(1234567, 12), "1234567");
  EXPECT_EQ(text(std::numeric_limits<double>::infinity()), "null");
  EXPECT_EQ(text(std::numeric_limits<double>::quiet_NaN()), "null");
}

TEST(page_text_test, times_are_whole_milliseconds_as_long_as_they_are_small) {
  std::string seconds;
  append_seconds(seconds, 1.23456);
  EXPECT_EQ(seconds, "1.235");
  EXPECT_EQ(rounded(1e308, 10), 1e308);
}

} // namespace troupe::internal
