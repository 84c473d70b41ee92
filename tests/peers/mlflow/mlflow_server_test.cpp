#include <gtest/gtest.h>

#include "tests/support/peer_server.hpp"

namespace troupe::test {
namespace {

TEST(mlflow_server_test, starts_answers_and_starts_again_after_its_death) {
  TROUPE_NEEDS_PEERS();
  peer_server server{{
    .command = {"mlflow", "server", "--host", "127.0.0.1", "--port", "{port}",
                "--workers", "1", "--backend-store-uri",
                "sqlite:///{home}/m.db", "--artifacts-destination",
                "{home}/artifacts"},
    .environment = {{"MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false"}},
  }};
  auto version = http_get(server.port(), "/version");
  ASSERT_TRUE(version);
  EXPECT_EQ(version->body, "3.17.2");
  server.kill();
  EXPECT_FALSE(http_get(server.port(), "/version"));
  server.restart();
  EXPECT_TRUE(http_get(server.port(), "/version"));
}

} // namespace
} // namespace troupe::test
