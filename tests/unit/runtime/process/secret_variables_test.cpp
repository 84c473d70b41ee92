#include "troupe/runtime/process/secrets.hpp"

#include <algorithm>
#include <cstdlib>

#include <gtest/gtest.h>

namespace troupe {
namespace {

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

} // namespace
} // namespace troupe
