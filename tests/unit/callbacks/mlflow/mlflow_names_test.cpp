#include "troupe/callbacks/mlflow/mlflow_names.hpp"

#include <limits>

#include <gtest/gtest.h>

namespace troupe::internal::test {
namespace {

TEST(mlflow_names_test, keeps_valid_names) {
  for (const auto* x : {"loss", "val/loss", "a b", "A-1_x.y:z",
                        "\xC3\xA4\xCE\xB2\xE4\xB8\xAD", "a/.b", "..."})
    EXPECT_EQ(clean_mlflow_name(x), x);
}

TEST(mlflow_names_test, replaces_what_is_not_valid) {
  EXPECT_EQ(clean_mlflow_name("acc@1"), "acc_1");
  EXPECT_EQ(clean_mlflow_name("f(x), y"), "f_x__ y");
  EXPECT_EQ(clean_mlflow_name("a//b"), "a/_/b");
  EXPECT_EQ(clean_mlflow_name("/a"), "_/a");
  EXPECT_EQ(clean_mlflow_name("a/"), "a/_");
  EXPECT_EQ(clean_mlflow_name("./a/../b"), "_/a/__/b");
  EXPECT_EQ(clean_mlflow_name(""), "_");
  EXPECT_EQ(clean_mlflow_name("\xE2\x82\xAC \xF0\x9F\x99\x82"), "_ _");
  EXPECT_EQ(clean_mlflow_name("a\xFF"
                              "b"),
            "a_b");
}

TEST(mlflow_names_test, cuts_long_names_between_characters) {
  EXPECT_EQ(clean_mlflow_name(std::string(250, 'x')), std::string(250, 'x'));
  EXPECT_EQ(clean_mlflow_name(std::string(251, 'x')), std::string(250, 'x'));
  auto text = std::string(249, 'x') + "\xC3\xA4";
  EXPECT_EQ(clean_mlflow_name(text), std::string(249, 'x'));
  text = std::string(249, 'x') + "/y";
  EXPECT_EQ(clean_mlflow_name(text), std::string(249, 'x') + "_");
}

TEST(mlflow_names_test, gives_each_name_a_different_one) {
  mlflow_names names;
  EXPECT_EQ(names("a_b"), "a_b");
  auto at = names("a@b");
  auto plus = names("a+b");
  EXPECT_TRUE(at.starts_with("a_b_"));
  EXPECT_NE(at, plus);
  EXPECT_EQ(names("c@d"), "c_d");
  EXPECT_NE(names("c_d"), "c_d");
  auto one = names(std::string(300, 'x') + "1");
  auto two = names(std::string(300, 'x') + "2");
  EXPECT_EQ(one.size(), max_mlflow_name);
  EXPECT_NE(one, two);
  EXPECT_EQ(names("a@b"), at);
}

TEST(mlflow_names_test, gives_the_same_names_in_another_process) {
  mlflow_names before;
  before("a@b");
  before("a+b");
  before("c");
  EXPECT_EQ(before.changed().size(), 2u);
  mlflow_names after{before.changed()};
  EXPECT_EQ(after("a+b"), before("a+b"));
  EXPECT_EQ(after("a@b"), before("a@b"));
  EXPECT_NE(after("a_b"), before("a@b"));
}

TEST(mlflow_names_test, keeps_artifacts_below_their_root) {
  EXPECT_EQ(artifact_path("a b/c(1).txt"), "a b/c(1).txt");
  EXPECT_EQ(artifact_path("../../x"), "__/__/x");
  EXPECT_EQ(artifact_path("/etc/x"), "_/etc/x");
  EXPECT_EQ(artifact_path("a#b%2e\\c\n"), "a_b_2e_c_");
}

TEST(mlflow_text_test, writes_values_so_that_they_read_back) {
  EXPECT_EQ(mlflow_text(true), "true");
  EXPECT_EQ(mlflow_text((std::int64_t{1} << 53) + 1), "9007199254740993");
  EXPECT_EQ(mlflow_text(0.1), "0.1");
  EXPECT_EQ(mlflow_text(1e300), "1e+300");
  EXPECT_EQ(mlflow_text(std::numeric_limits<double>::quiet_NaN()), "nan");
  EXPECT_EQ(mlflow_text(-std::numeric_limits<double>::infinity()), "-inf");
  EXPECT_EQ(mlflow_text("a\xFF"), "a\xEF\xBF\xBD");
}

TEST(mlflow_text_test, marks_what_it_cuts) {
  EXPECT_EQ(cut_mlflow_text("0123456789", 10), "0123456789");
  EXPECT_EQ(cut_mlflow_text("0123456789ab", 11), "01... [cut]");
  EXPECT_EQ(cut_mlflow_text("0\xC3\xA4"
                            "23456789ab",
                            11),
            "0... [cut]");
}

} // namespace
} // namespace troupe::internal::test
