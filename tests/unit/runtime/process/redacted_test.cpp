#include "troupe/runtime/process/secrets.hpp"

#include <cstdlib>
#include <iterator>
#include <random>
#include <string>

#include <gtest/gtest.h>

namespace troupe::test {
namespace {

TEST(redacted_test, knows_secrets_by_their_place) {
  EXPECT_EQ(redacted("GET http://me:pw@host/x"), "GET http://***@host/x");
  EXPECT_EQ(redacted("Authorization: Basic dTpw and on"),
            "Authorization: *** and on");
  EXPECT_EQ(redacted(R"({"authorization": "Bearer abcdefghij", "a": 1})"),
            R"({"authorization": "***", "a": 1})");
  EXPECT_EQ(redacted("sent bearer abcdefghij."), "sent bearer ***");
  EXPECT_EQ(redacted("/x?apiKey=abc&b=c"), "/x?apiKey=***&b=c");
  EXPECT_EQ(redacted("X-Amz-Signature=123&sig=4"),
            "X-Amz-Signature=***&sig=***");
  EXPECT_EQ(redacted("password: geheim"), "password: ***");
}

TEST(redacted_test, has_no_limit_to_the_length_of_a_word) {
  const std::string word(100'000, 'a');
  for (const auto* before :
       {"{\"token\":\"", "://", "authorization: ", "authorization: basic ",
        "bearer ", "api_key=", "api", "password", "sig = '"}) {
    auto text = redacted(before + word + "@host end");
    EXPECT_TRUE(text.ends_with(" end")) << before;
    EXPECT_LT(text.size(), 2 * word.size()) << before;
  }
  // Each is in the value of the one before.
  for (std::string part : {"token=", "authorization:", "sig='", "://a@"}) {
    std::string text;
    while (text.size() < word.size())
      text += part;
    EXPECT_LE(redacted(text).size(), text.size() * 2) << part;
  }
  // Many beginnings that lead to nothing, and long ways to where they fail.
  for (const auto* part :
       {"token ", "://:", "basic ", "authorization", "api_", "\"", "   "}) {
    std::string text = "x";
    while (text.size() < word.size())
      text += part;
    EXPECT_EQ(redacted(text), text) << part;
  }
}

// Texts of all that the rules know, in any order, with a secret where one goes.
TEST(redacted_test, leaves_no_secret_in_any_text) {
  std::mt19937 random{20261121};
  auto one_of = [&](const auto& all) {
    return std::string{all[random() % std::size(all)]};
  };
  constexpr const char* fillers[] = {
    " ",      "\n",     "a",    "://",     "token",  "api_key", "=",  ":",
    "\"",     "'",      "{",    "}",       ",",      "&",       "@",  "sig",
    "bearer", "basic ", "http", "x=1&y=2", "secret", "***",     "\0", "\xC3"};
  constexpr const char* places[] = {"https://user:%@host/",
                                    "Authorization: Bearer %",
                                    "authorization='%'",
                                    "\"api-key\": \"%\"",
                                    "?token=%&a=b",
                                    "X-Amz-Signature=%",
                                    "basic %",
                                    "client_secret : %"};
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    for (auto n = random() % 20; n > 0; --n)
      text += one_of(fillers);
    text += '\n';
    auto place = one_of(places);
    text += place.replace(place.find('%'), 1, "Zx9Zx9Zx9Zx9");
    text += '\n';
    for (auto n = random() % 20; n > 0; --n)
      text += one_of(fillers);
    auto clean = redacted(text);
    ASSERT_EQ(clean.find("Zx9"), clean.npos) << text;
  }
}

TEST(redacted_test, looks_at_each_line_of_a_log_by_itself) {
  EXPECT_EQ(redacted_lines("token:\nfirst\n\npassword=a b\nlast"),
            "token:\nfirst\n\npassword=*** b\nlast");
  EXPECT_EQ(redacted_lines("\n"), "\n");
  EXPECT_EQ(redacted_lines(""), "");
}

TEST(redacted_test, leaves_other_text_alone) {
  for (const auto* x : {"set MLFLOW_TRACKING_TOKEN or MLFLOW_TRACKING_PASSWORD",
                        "http://host:5000/api/2.0/mlflow", "a@b.example", "",
                        "unknown token: 'hello'"})
    EXPECT_EQ(redacted(x), x);
}

TEST(redacted_test, takes_no_short_secret_for_a_part_of_a_word_or_path) {
  ::setenv("DATABASE_URL", "mysql://root:root@localhost", 1);
  EXPECT_EQ(redacted("/root/runs/uprooted: root is no password, (root) is"),
            "/root/runs/uprooted: *** is no password, (***) is");
  ::unsetenv("DATABASE_URL");
}

TEST(redacted_test, knows_the_values_of_the_trackers_variables) {
  for (const auto* name :
       {"WANDB_API_KEY", "COMET_API_KEY", "MLFLOW_TRACKING_TOKEN",
        "MLFLOW_TRACKING_PASSWORD", "DATABRICKS_TOKEN",
        "DATABRICKS_CLIENT_SECRET", "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN", "MLFLOW_TRACKING_USERNAME", "HF_TOKEN",
        "AZURE_CLIENT_SECRET", "GOOGLE_API_KEY"}) {
    ::setenv(name, "planted", 1);
    EXPECT_EQ(redacted("a planted b planted"), "a *** b ***") << name;
    ::unsetenv(name);
  }
  EXPECT_EQ(redacted("a planted b"), "a planted b");
  EXPECT_EQ(redacted("a planted b", "planted"), "a *** b");
}

TEST(redacted_test, takes_what_may_begin_a_secret_from_the_end_of_a_cut_text) {
  ::setenv("HF_TOKEN", "hf_ planted secret", 1);
  const redactor clean;
  for (const auto* begin : {"hf_ ", "hf_ pla", "hf_ planted secret"})
    EXPECT_EQ(clean.of_cut(std::string{"sent "} + begin), "sent ***") << begin;
  EXPECT_EQ(clean.of_cut("sent hf_ pla."), "sent hf_ pla.");
  EXPECT_EQ(clean.of_cut("xhf_ plant"), "x***");
  EXPECT_EQ(clean.of_cut("shf_ "), "shf_ "); // Any word may end like this.
  EXPECT_EQ(clean.of_cut("GET https://me:gehe"), "GET https://***");
  EXPECT_EQ(clean.of_cut("sent Bearer abc"), "sent Bearer ***");
  for (const auto* x : {"GET https://host/a", "the word bearer", "basic ", ""})
    EXPECT_EQ(clean.of_cut(x), x);
  ::unsetenv("HF_TOKEN");
}

TEST(shown_url_test, leaves_users_and_queries_out) {
  EXPECT_EQ(shown_url("http://u:p@host:80/a/b?c=d#e"), "http://host:80/a/b");
  EXPECT_EQ(shown_url("https://host"), "https://host");
  EXPECT_EQ(shown_url("https://host/a@b"), "https://host/a@b");
  EXPECT_EQ(shown_url("https://a@b@host"), "https://host");
}

} // namespace
} // namespace troupe::test
