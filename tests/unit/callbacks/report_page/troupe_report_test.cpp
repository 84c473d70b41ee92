// `troupe report`, run as a user would.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/run_command.hpp"
#include "tests/support/written_run.hpp"
#include "troupe/callbacks/report_page/report_page.hpp"

namespace troupe::internal::test {

namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

command_result troupe_report(const std::string& arguments) {
  return run_command(std::string{"'"} + TROUPE_PROGRAM + "' report "
                     + arguments);
}

std::string quoted(const fs::path& x) {
  return "'" + x.string() + "'";
}

} // namespace

TEST(troupe_report_test, it_writes_the_page_and_says_where) {
  written_run run;
  auto [code, output] = troupe_report(quoted(run.path()) + "/");
  EXPECT_EQ(code, 0) << output;
  EXPECT_THAT(output, HasSubstr("report.html"));
  EXPECT_EQ(bytes_of(run.path() / "report.html"),
            render_report_page(run.path()).value());
}

TEST(troupe_report_test, another_file_leaves_the_folder_as_it_is) {
  written_run run;
  temporary_folder folder;
  auto file = folder / "page.html";
  auto [code, output] =
    troupe_report(quoted(run.path()) + " --output " + quoted(file));
  EXPECT_EQ(code, 0) << output;
  EXPECT_EQ(output, file.string() + "\n");
  EXPECT_THAT(bytes_of(file), StartsWith("<!DOCTYPE html>"));
  EXPECT_FALSE(fs::exists(run.path() / "report.html"));
}

TEST(troupe_report_test, what_is_not_a_run_ends_with_2_and_a_sentence) {
  temporary_folder folder;
  auto missing = troupe_report(quoted(folder / "nowhere"));
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.output, StartsWith("troupe report: "));
  auto empty = troupe_report(quoted(folder.path()));
  EXPECT_EQ(empty.exit_code, 2);
  EXPECT_THAT(empty.output, StartsWith("troupe report: "));
}

TEST(troupe_report_test, a_page_that_cannot_be_put_there_ends_with_1) {
  written_run run;
  auto [code, output] =
    troupe_report(quoted(run.path()) + " --output /proc/page.html");
  EXPECT_EQ(code, 1);
  EXPECT_THAT(output, HasSubstr("/proc/page.html"));
}

TEST(troupe_report_test, wrong_arguments_end_with_2_and_say_where_to_read) {
  for (auto arguments : {"", "--fast", "one two", "run --output", "'' -o x"}) {
    auto [code, output] = troupe_report(arguments);
    EXPECT_EQ(code, 2) << arguments;
    EXPECT_THAT(output, HasSubstr("troupe report --help lists the arguments"))
      << arguments;
  }
}

TEST(troupe_report_test, help_is_not_an_error) {
  auto [code, output] = troupe_report("--help");
  EXPECT_EQ(code, 0);
  EXPECT_THAT(output, HasSubstr("Usage: troupe report [OPTIONS] RUN"));
}

TEST(troupe_report_test, it_prints_the_page_if_asked) {
  written_run run;
  auto [code, output] = troupe_report(quoted(run.path()) + " --output -");
  EXPECT_EQ(code, 0) << output;
  EXPECT_THAT(output, StartsWith("<!DOCTYPE html>"));
  EXPECT_THAT(output, ::testing::EndsWith("</html>\n"));
  EXPECT_FALSE(fs::exists(run.path() / "report.html"));
  EXPECT_FALSE(fs::exists("-"));
}

} // namespace troupe::internal::test
