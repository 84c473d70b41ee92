#include "troupe/callbacks/csv/csv_table.hpp"

#include <array>
#include <cstdint>
#include <limits>
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/run_command.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe::internal {
namespace {

std::string text_of(const metric_value& x) {
  std::string out;
  csv::append_value(out, x);
  return out;
}

std::string name_text(std::string_view x) {
  std::string out;
  csv::append_name(out, x);
  return out;
}

TEST(csv_table_test, writes_every_kind_of_value) {
  using limits = std::numeric_limits<double>;
  EXPECT_EQ(text_of(true), "true");
  EXPECT_EQ(text_of(false), "false");
  EXPECT_EQ(text_of((std::int64_t{1} << 53) + 1), "9007199254740993");
  EXPECT_EQ(text_of(std::numeric_limits<std::int64_t>::min()),
            "-9223372036854775808");
  EXPECT_EQ(text_of(0.1), "0.1");
  EXPECT_EQ(text_of(1e300), "1e+300");
  EXPECT_EQ(text_of(limits::quiet_NaN()), "nan");
  EXPECT_EQ(text_of(-limits::quiet_NaN()), "nan");
  EXPECT_EQ(text_of(limits::infinity()), "inf");
  EXPECT_EQ(text_of(-limits::infinity()), "-inf");
  EXPECT_EQ(text_of("nan"), "\"nan\"");
  EXPECT_EQ(text_of(""), "\"\"");
  EXPECT_EQ(text_of("a\"b"), "\"a\"\"b\"");
  EXPECT_EQ(text_of("\xff"), "\"\xef\xbf\xbd\"");
}

TEST(csv_table_test, puts_names_in_quotes_only_where_they_need_them) {
  EXPECT_EQ(name_text("val/loss"), "val/loss");
  EXPECT_EQ(name_text("größe"), "größe");
  EXPECT_EQ(name_text("a,b"), "\"a,b\"");
  EXPECT_EQ(name_text("a\"b"), "\"a\"\"b\"");
  EXPECT_EQ(name_text("a\nb"), "\"a\nb\"");
  EXPECT_EQ(name_text(" a"), "\" a\"");
}

// Texts of up to twelve of the characters that matter.
std::string random_text(std::mt19937& random) {
  static constexpr std::array pieces{"\"", ",", "\n", "\r", " ",  "a", "é",
                                     "😀",  ";", "\t", "'",  "\\", "1", "\"\""};
  std::string result;
  for (auto i = random() % 13; i > 0; --i)
    result += pieces[random() % pieces.size()];
  return result;
}

std::string python_says(const std::string& script, const fs::path& argument) {
  test::temporary_folder folder;
  test::write_bytes(folder / "script.py", script);
  return test::run_command("python3 '" + (folder / "script.py").string() + "' '"
                           + argument.string() + "'")
    .output;
}

TEST(csv_table_test, is_read_back_by_pythons_csv_module) {
  std::mt19937 random{2026};
  std::string file;
  nlohmann::json expected = nlohmann::json::array();
  for (int line = 0; line < 500; ++line) {
    auto cells = nlohmann::json::array();
    for (auto i = 1 + random() % 6; i > 0; --i) {
      if (!cells.empty())
        file += ',';
      auto text = random_text(random);
      if (random() % 2 == 0)
        csv::append_value(file, text);
      else
        csv::append_name(file, text + 'x'); // a line of one empty name is none
      cells.push_back(file.ends_with("x\"") || file.ends_with('x') ? text + 'x'
                                                                   : text);
    }
    file += '\n';
    expected.push_back(cells);
  }
  test::temporary_folder folder;
  test::write_bytes(folder / "table.csv", file);
  auto read = python_says(
    "import csv, json, sys\n"
    "print(json.dumps(list(csv.reader(open(sys.argv[1], newline='',\n"
    "                                      encoding='utf-8'), "
    "strict=True))))\n",
    folder / "table.csv");
  EXPECT_EQ(nlohmann::json::parse(read, nullptr, false), expected) << read;
}

TEST(csv_table_test, reads_its_own_lines_back) {
  std::mt19937 random{7};
  for (int i = 0; i < 500; ++i) {
    std::vector<std::string> cells;
    std::string line;
    for (auto count = 1 + random() % 6; count > 0; --count) {
      cells.push_back(random_text(random));
      if (cells.size() > 1)
        line += ',';
      csv::append_name(line, cells.back());
    }
    EXPECT_EQ(csv::cells_of(line), cells) << line;
    csv::line_scanner scanner;
    for (auto c : line)
      EXPECT_FALSE(scanner.ends_line(c)) << line;
    EXPECT_TRUE(scanner.ends_line('\n')) << line;
  }
}

} // namespace
} // namespace troupe::internal
