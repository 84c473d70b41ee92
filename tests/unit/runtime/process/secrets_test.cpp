#include "troupe/runtime/process/secrets.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <random>
#include <stop_token>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "tests/support/child.hpp"
#include "tests/support/sanitized.hpp"

namespace troupe::internal::test {
namespace {

// -- variables that hold secrets

TEST(secret_variables_test, has_what_programs_sign_in_with) {
  for (auto name : {"WANDB_API_KEY",
                    "COMET_API_KEY",
                    "MLFLOW_TRACKING_TOKEN",
                    "MLFLOW_TRACKING_PASSWORD",
                    "MLFLOW_TRACKING_USERNAME",
                    "DATABRICKS_TOKEN",
                    "DATABRICKS_CLIENT_SECRET",
                    "AWS_ACCESS_KEY_ID",
                    "AWS_SECRET_ACCESS_KEY",
                    "AWS_SESSION_TOKEN",
                    "AWS_SECURITY_TOKEN",
                    "HF_TOKEN",
                    "HUGGING_FACE_HUB_TOKEN",
                    "AZURE_CLIENT_SECRET",
                    "AZURE_STORAGE_KEY",
                    "AZURE_STORAGE_CONNECTION_STRING",
                    "AZURE_STORAGE_SAS_TOKEN",
                    "AZURE_OPENAI_API_KEY",
                    "GOOGLE_APPLICATION_CREDENTIALS",
                    "GOOGLE_API_KEY",
                    "GOOGLE_CLIENT_SECRET",
                    "OPENAI_API_KEY",
                    "DB_PASSWORD",
                    "API_KEY",
                    "TOKEN",
                    "PASSWORD",
                    "SECRET",
                    "SECRET_KEY",
                    "KAGGLE_KEY",
                    "PGPASSWORD",
                    "MYSQL_PWD",
                    "SMTP_PASS",
                    "GITHUB_PAT",
                    "GITHUB_TOKEN"})
    EXPECT_TRUE(is_secret_variable(name)) << name;
}

TEST(secret_variables_test, leaves_out_values_that_are_not_secrets) {
  for (auto name : {"PATH",
                    "HOME",
                    "AWS_REGION",
                    "AWS_PROFILE",
                    "GOOGLE_CLOUD_PROJECT",
                    "AZURE_TENANT_ID",
                    "WANDB_PROJECT",
                    "MLFLOW_TRACKING_URI",
                    "TOKENIZERS_PARALLELISM",
                    "SSH_AUTH_SOCK",
                    "OMP_NUM_THREADS",
                    "TOKEN_COUNT",
                    "PWD",
                    "OLDPWD",
                    "COMPASS",
                    "NCCL_IB_PKEY",
                    "MONKEY",
                    "PATH_PATTERN",
                    "PGPASSFILE",
                    "KEYMAP",
                    ""})
    EXPECT_FALSE(is_secret_variable(name)) << name;
}

TEST(secret_variables_test, takes_a_star_for_any_characters) {
  EXPECT_TRUE(is_variable_of("A", "A"));
  EXPECT_TRUE(is_variable_of("A_B_C", "A*C"));
  EXPECT_TRUE(is_variable_of("AB", "A*B"));
  EXPECT_TRUE(is_variable_of("xAyBz", "*A*B*"));
  EXPECT_TRUE(is_variable_of("ABAB", "*A*AB"));
  EXPECT_FALSE(is_variable_of("AC", "A"));
  EXPECT_FALSE(is_variable_of("A", "A*A"));
  EXPECT_FALSE(is_variable_of("BA", "*A*B*"));
}

TEST(secret_variables_test, gives_the_values_that_are_set) {
  ::setenv("TROUPE_TEST_TOKEN", "planted=value", 1);
  ::setenv("TROUPE_TEST_COLOR", "green", 1);
  auto values = secret_values();
  ::unsetenv("TROUPE_TEST_TOKEN");
  ::unsetenv("TROUPE_TEST_COLOR");
  EXPECT_TRUE(std::ranges::count(values, "planted=value"));
  EXPECT_FALSE(std::ranges::count(values, "green"));
}

TEST(secret_variables_test, knows_a_login_in_a_url) {
  for (auto x : {"postgresql://me:pw@db/x", "redis://:pw@cache:6379",
                 "https://ghp_abc@github.com/x", "a=b mysql+py://u:p%40@h",
                 "http://a:1/b,http://u:pw@proxy:3128"})
    EXPECT_TRUE(holds_login(x)) << x;
  for (auto x : {"postgresql://me@db/x", "ssh://git@host/x",
                 "http://host:80/a@b", "http://a:5000/image:1@sha256:2", "a@b",
                 "me:pw@host", "abfss://box@account.dfs/x", "https://", "://",
                 "redis://:@h", "http://host:80?user=a@b", ""})
    EXPECT_FALSE(holds_login(x)) << x;
}

TEST(secret_variables_test, gives_passwords_in_urls_and_lines_of_a_key) {
  ::setenv("TROUPE_TEST_URL", "postgresql://me:in-url@db/x", 1);
  ::setenv("TROUPE_TEST_KEY", "-----BEGIN\nMIIEowIBAAKCAQ\nx\n", 1);
  auto values = secret_values();
  ::unsetenv("TROUPE_TEST_URL");
  ::unsetenv("TROUPE_TEST_KEY");
  EXPECT_TRUE(std::ranges::count(values, "in-url"));
  EXPECT_TRUE(std::ranges::count(values, "MIIEowIBAAKCAQ"));
  EXPECT_FALSE(std::ranges::count(values, "x"));
}

TEST(secret_variables_test, gives_what_ranks_get) {
  note_secrets({{"TROUPE_TEST_TOKEN", "for ranks"}, {"COLOR", "turquoise"}});
  auto values = secret_values();
  EXPECT_TRUE(std::ranges::count(values, "for ranks"));
  EXPECT_FALSE(std::ranges::count(values, "turquoise"));
}

// -- texts without them

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
  EXPECT_EQ(redacted("/root/runs/uprooted: root is not a password, (root) is"),
            "/root/runs/uprooted: *** is not a password, (***) is");
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

TEST(note_secrets_test, a_process_forked_meanwhile_reads_them) {
  TROUPE_SKIP_FORKS_UNDER_TSAN();
  const std::map<std::string, std::string> environment{
    {"FORKED_TOKEN", "noted before the fork"}};
  note_secrets(environment);
  std::jthread other{[&](std::stop_token stop) {
    while (!stop.stop_requested())
      note_secrets(environment);
  }};
  for (int i = 0; i < 100; ++i) {
    auto status = run_in_child([] {
      ::alarm(20); // It waits for nothing.
      ::_exit(redacted("noted before the fork") == "***" ? 0 : 2);
    });
    ASSERT_EQ(status, 0) << i;
  }
}

TEST(shown_url_test, leaves_users_and_queries_out) {
  EXPECT_EQ(shown_url("http://u:p@host:80/a/b?c=d#e"), "http://host:80/a/b");
  EXPECT_EQ(shown_url("https://host"), "https://host");
  EXPECT_EQ(shown_url("https://host/a@b"), "https://host/a@b");
  EXPECT_EQ(shown_url("https://a@b@host"), "https://host");
}

TEST(without_user_test, changes_addresses_only) {
  EXPECT_EQ(without_user("http://u:p@host:80/a?b=c@d"),
            "http://host:80/a?b=c@d");
  EXPECT_EQ(without_user("https://u:p@host?b=c@d"), "https://host?b=c@d");
  for (auto text : {"https://host/a@b", "https://host?a@b", "me@host",
                    "see http://u:p@host", "://@", "", "http://",
                    "https://host is for me@host"})
    EXPECT_EQ(without_user(text), text);
}

} // namespace
} // namespace troupe::internal::test
