#include "troupe/callbacks/console.hpp"

#include <random>

#include <gtest/gtest.h>

namespace troupe::internal {
namespace {

TEST(console_test, keeps_text_that_fits) {
  EXPECT_EQ(fit_to_line("loss=0.5", 8), "loss=0.5");
  EXPECT_EQ(fit_to_line("", 0), "");
  EXPECT_EQ(fit_to_line("größe", 5), "größe");
}

TEST(console_test, cuts_between_characters_and_marks_the_cut) {
  EXPECT_EQ(fit_to_line("loss=0.5", 7), "loss=0…");
  EXPECT_EQ(fit_to_line("größe", 4), "grö…");
  EXPECT_EQ(fit_to_line("größe", 3), "gr…");
  EXPECT_EQ(fit_to_line("abc", 1), "…");
  EXPECT_EQ(fit_to_line("abc", 0), "");
}

TEST(console_test, counts_wide_and_combining_characters) {
  EXPECT_EQ(display_width("損失"), 4);
  EXPECT_EQ(display_width("e\u0301"), 1);
  EXPECT_EQ(display_width("🚀"), 2);
  EXPECT_EQ(fit_to_line("損失=1", 6), "損失=1");
  EXPECT_EQ(fit_to_line("損失=1", 5), "損失…");
  EXPECT_EQ(fit_to_line("損失=1", 4), "損…");
}

TEST(console_test, replaces_control_characters) {
  EXPECT_EQ(fit_to_line("a\nb\tc", 80), "a b c");
  EXPECT_EQ(fit_to_line("\x1b[2Jx\r\x7f", 80), "?[2Jx??");
  EXPECT_EQ(fit_to_line("\u009b31m", 80), "?31m"); // CSI in one character
  EXPECT_EQ(fit_to_line("\u202egnp.exe", 80), "?gnp.exe");
}

TEST(console_test, shows_invalid_utf8_as_question_marks) {
  EXPECT_EQ(fit_to_line("\xff", 80), "?");
  EXPECT_EQ(fit_to_line("a\xc3", 80), "a?");
  EXPECT_EQ(fit_to_line("\xc0\xaf", 80), "??");           // overlong '/'
  EXPECT_EQ(fit_to_line("\xe0\x80\xaf", 80), "???");      // overlong '/'
  EXPECT_EQ(fit_to_line("\xed\xa0\x80", 80), "???");      // surrogate
  EXPECT_EQ(fit_to_line("\xf4\x90\x80\x80", 80), "????"); // over U+10FFFF
  EXPECT_EQ(fit_to_line("\xe6\x90x", 80), "??x");
}

TEST(console_test, never_exceeds_the_width_whatever_the_bytes) {
  std::mt19937 random{3};
  const std::string_view pieces[] = {"a",    "ß",    "損", "🚀",   "\u0301",
                                     "\xff", "\xe6", "\n", "\x1b"};
  for (int i = 0; i < 5000; ++i) {
    std::string text;
    for (auto n = random() % 30; n > 0; --n)
      text += pieces[random() % std::size(pieces)];
    auto columns = static_cast<int>(random() % 20);
    auto line = fit_to_line(text, columns);
    ASSERT_LE(display_width(line), columns);
    ASSERT_EQ(fit_to_line(line, columns), line);
    if (display_width(text) <= columns) {
      ASSERT_EQ(display_width(line), display_width(text));
    } else if (columns > 0) {
      ASSERT_TRUE(line.ends_with("…"));
    }
  }
}

} // namespace
} // namespace troupe::internal
