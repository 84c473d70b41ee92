#include "troupe/runtime/text.hpp"

#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace troupe::internal {
namespace {

std::string json_string(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

std::string number(auto x) {
  std::string out;
  append_number(out, x);
  return out;
}

std::string real(double x) {
  std::string out = "1.5 ";
  append_real(out, x);
  return out.substr(4);
}

TEST(text_test, joins_texts_characters_and_integers) {
  EXPECT_EQ(concat("rank ", 3, ':', std::string_view{" a\0b", 4},
                   std::string{" c "}, -7, ' ', std::uint8_t{255}),
            (std::string{"rank 3: a\0b c -7 255", 20}));
  EXPECT_EQ(concat(std::numeric_limits<std::uint64_t>::max()),
            "18446744073709551615");
  EXPECT_EQ(concat(), "");
}

TEST(text_test, joins_a_list_with_separators) {
  const std::vector<std::string> names{"", "b", "c"};
  EXPECT_EQ(joined(names), ", b, c");
  EXPECT_EQ(joined(names, "|", &std::string::size), "0|1|1");
  EXPECT_EQ(joined(std::vector<int>{}), "");
  EXPECT_EQ(listed(names, 3), ", b, c");
  EXPECT_EQ(listed(names, 1), " and 2 more");
  std::string list;
  append_item(list, "a");
  append_item(list, 7, "; ");
  EXPECT_EQ(list, "a; 7");
}

TEST(text_test, writes_durations_in_whole_units_of_a_sentence) {
  using namespace std::chrono_literals;
  EXPECT_EQ(duration_text(0s), "0 ms");
  EXPECT_EQ(duration_text(250'999us), "250 ms");
  EXPECT_EQ(duration_text(999ms), "999 ms");
  EXPECT_EQ(duration_text(1s), "1 s");
  EXPECT_EQ(duration_text(1'999ms), "1.9 s");
  EXPECT_EQ(duration_text(9'050ms), "9 s");
  EXPECT_EQ(duration_text(10'900ms), "10 s");
  EXPECT_EQ(duration_text(1min), "60 s");
  EXPECT_EQ(duration_text(-5s), "-5000 ms");
}

TEST(text_test, knows_the_letters_and_digits_of_ascii_only) {
  EXPECT_EQ(in_lower_case("AZaz[@`{09Ä"), "azaz[@`{09Ä");
  EXPECT_TRUE(is_letter('Z') && is_letter('a') && is_digit('9'));
  for (auto c : {'@', '[', '`', '{', '/', ':', '\xc4'})
    EXPECT_FALSE(is_letter(c) || is_digit(c)) << c;
}

TEST(text_test, writes_all_hexadecimal_digits_of_bytes_and_numbers) {
  std::string out;
  append_hex(out, "a\xff");
  append_hex(out, std::uint32_t{0x1a2b});
  append_hex(out, std::uint64_t{7});
  EXPECT_EQ(out, "61ff"
                 "00001a2b"
                 "0000000000000007");
}

TEST(text_test, writes_times_as_a_format_says) {
  auto time = std::chrono::sys_days{std::chrono::year{2026} / 3 / 4}
              + std::chrono::milliseconds{3661999};
  EXPECT_EQ(utc_text(time, "%d.%m.%Y"), "04.03.2026");
}

TEST(text_test, reads_back_the_seconds_of_a_timestamp) {
  auto day = std::chrono::sys_days{std::chrono::year{2026} / 3 / 4};
  auto text = timestamp(day + std::chrono::milliseconds{3661999});
  EXPECT_EQ(text, "2026-03-04T01:01:01Z");
  EXPECT_EQ(parse_timestamp(text), day + std::chrono::seconds{3661});
  EXPECT_FALSE(parse_timestamp(text + "0"));
  EXPECT_FALSE(parse_timestamp("2026-03-04"));
}

TEST(text_test, names_the_numbers_that_are_not_finite) {
  using limits = std::numeric_limits<double>;
  for (auto words : {plain_words, json_words}) {
    EXPECT_TRUE(std::isnan(*words.value(words.of(limits::quiet_NaN()))));
    for (auto x : {limits::infinity(), -limits::infinity()})
      EXPECT_EQ(words.value(words.of(x)), x);
    EXPECT_FALSE(words.value("1"));
  }
  EXPECT_EQ(plain_words.of(-limits::infinity()), "-inf");
  EXPECT_EQ(json_words.of(-limits::quiet_NaN()), "NaN");
}

TEST(text_test, writes_numbers_as_short_as_they_read_back) {
  EXPECT_EQ(number(0.1), "0.1");
  EXPECT_EQ(number(0.1f), "0.1");
  EXPECT_EQ(number(1e22), "1e+22");
  EXPECT_EQ(number(-2.0), "-2");
  EXPECT_EQ(number(std::numeric_limits<std::uint64_t>::max()),
            "18446744073709551615");
  EXPECT_EQ(number(std::numeric_limits<double>::lowest()),
            "-1.7976931348623157e+308");
}

TEST(text_test, writes_a_real_number_so_that_it_is_not_taken_for_an_integer) {
  EXPECT_EQ(real(2), "2.0");
  EXPECT_EQ(real(-0.0), "-0.0");
  EXPECT_EQ(real(0.25), "0.25");
  EXPECT_EQ(real(1e22), "1e+22");
}

TEST(text_test, escapes_what_json_does_not_allow_between_quotes) {
  EXPECT_EQ(json_string(""), R"("")");
  EXPECT_EQ(json_string("a\"b\\c\n\r\t\x01\x7f/é"),
            R"("a\"b\\c\n\r\t\u0001\u007f/é")");
  EXPECT_EQ(json_string({"\0", 1}), R"("\u0000")");
}

TEST(text_test, takes_blanks_from_both_ends_only) {
  EXPECT_EQ(without_blanks("\t a b \r"), "a b");
  EXPECT_EQ(without_blanks("a"), "a");
  EXPECT_EQ(without_blanks(" \t\r "), "");
  EXPECT_EQ(without_blanks(""), "");
  EXPECT_EQ(without_blanks(" a\r", " "), "a\r");
}

TEST(text_test, replaces_invalid_utf8) {
  EXPECT_EQ(json_string("a\xff"
                        "b"),
            "\"a\xef\xbf\xbd"
            "b\"");
  EXPECT_EQ(utf8_text("\xe2\x82"), "\xef\xbf\xbd"); // cut short
  EXPECT_EQ(utf8_text("\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(utf8_text("\xc0\xaf"), "\xef\xbf\xbd\xef\xbf\xbd"); // overlong
  EXPECT_EQ(utf8_text("\xf4\x90\x80\x80").size(), 12u); // above U+10FFFF
  EXPECT_EQ(utf8_text("größe €😀"), "größe €😀");
}

TEST(text_test, replaces_as_often_as_another_writer_does) {
  for (unsigned first = 0x80; first < 0x100; ++first)
    for (unsigned second = 0; second < 0x100; second += 5) {
      const std::string text{'x', static_cast<char>(first),
                             static_cast<char>(second), 'y'};
      auto theirs = nlohmann::json(text).dump(
        -1, ' ', false, nlohmann::json::error_handler_t::replace);
      EXPECT_EQ(nlohmann::json::parse(json_string(text)),
                nlohmann::json::parse(theirs))
        << first << ' ' << second;
    }
}

} // namespace
} // namespace troupe::internal
