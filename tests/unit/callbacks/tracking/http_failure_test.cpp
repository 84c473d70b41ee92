#include "troupe/callbacks/tracking/http_failure.hpp"

#include <cstdlib>

#include <gtest/gtest.h>

namespace troupe::internal::test {
namespace {

using sink_kind = sink_failure::kind;

const http_request request{.method = "POST",
                           .url = "http://u:pass@host:1/api?api_key=k"};

TEST(http_failure_test, sorts_every_status) {
  using enum sink_failure::kind;
  const status_meaning busy{transient}, forbidden{permanent}, refused{rejected};
  for (auto author : {reply_author::service, reply_author::unknown}) {
    for (int status : {408, 425, 429, 502, 503, 504, 507, 509, 520, 521,
                       522, 523, 524, 525, 526, 527, 529, 530, 598, 599})
      EXPECT_EQ(meaning_of(status, author), busy) << status;
    EXPECT_EQ(meaning_of(500, author), (status_meaning{transient, true}));
    for (int status : {301, 302, 307, 308, 401, 403, 407})
      EXPECT_EQ(meaning_of(status, author), forbidden) << status;
    for (int status :
         {400, 402, 409, 411, 412, 413, 414, 415, 417, 422, 431, 501, 505})
      EXPECT_EQ(meaning_of(status, author), refused) << status;
  }
}

// Traefik, ngrok and others answer 404 for a service that restarts.
TEST(http_failure_test, believes_no_gateway_that_the_service_is_not_there) {
  for (int status : {404, 405, 410, 421}) {
    EXPECT_EQ(meaning_of(status, reply_author::service),
              status_meaning{sink_kind::rejected})
      << status;
    EXPECT_EQ(meaning_of(status, reply_author::unknown),
              (status_meaning{sink_kind::transient, true}))
      << status;
  }
}

TEST(http_failure_test, sorts_every_failure_without_a_reply) {
  using x = http_failure::kind;
  for (auto what :
       {x::unreachable, x::cut, x::timeout, x::cancelled, x::unreadable}) {
    auto failure = failure_of(request, http_failure{what, ""});
    EXPECT_EQ(failure.what, sink_kind::transient);
    EXPECT_EQ(failure.suspect, what == x::unreadable);
  }
  auto untrusted = failure_of(request, http_failure{x::untrusted, ""});
  EXPECT_EQ(untrusted.what, sink_kind::permanent);
  EXPECT_NE(untrusted.reason.message.find("REQUESTS_CA_BUNDLE"),
            std::string::npos);
  EXPECT_EQ(failure_of(request, http_failure{x::unusable, ""}).what,
            sink_kind::rejected);
}

TEST(http_failure_test, quotes_the_message_of_a_json_reply) {
  http_reply reply;
  reply.status = 400;
  reply.body = R"({"error_code":"X","message":"Not  \n good"})";
  auto x = failure_of(request, reply, reply_author::service, "Do this.");
  EXPECT_EQ(x.reason.message,
            "POST http://host:1/api: status 400: Not good; Do this.");
}

TEST(http_failure_test, suspects_the_records_of_a_500_alone) {
  http_reply reply;
  for (int status : {408, 429, 500, 502, 503, 504}) {
    reply.status = status;
    auto x = failure_of(request, reply, reply_author::unknown);
    EXPECT_EQ(x.what, sink_kind::transient) << status;
    EXPECT_EQ(x.suspect, status == 500) << status;
  }
}

TEST(http_failure_test, quotes_the_beginning_of_any_other_reply) {
  http_reply reply;
  reply.status = 500;
  for (int i = 0; i < 200; ++i)
    reply.body += "<p>\r\n\xC3\xA4";
  auto text = failure_of(request, reply, reply_author::service).reason.message;
  EXPECT_TRUE(text.starts_with(
    "POST http://host:1/api: status 500: <p> \xC3\xA4<p> \xC3\xA4"));
  EXPECT_TRUE(text.ends_with("..."));
  EXPECT_LT(text.size(), 400u);
}

TEST(http_failure_test, passes_on_the_requested_pause) {
  http_reply reply;
  reply.status = 503;
  reply.retry_after = std::chrono::seconds{5};
  EXPECT_EQ(failure_of(request, reply, reply_author::service).retry_after,
            std::chrono::seconds{5});
}

TEST(http_failure_test, names_the_target_of_a_redirect) {
  http_reply reply;
  reply.status = 308;
  reply.redirect = "https://host/api?x";
  EXPECT_EQ(failure_of(request, reply, reply_author::service).reason.message,
            "POST http://host:1/api: status 308, it is at https://host/api "
            "now");
}

TEST(http_failure_test, quotes_no_secret_even_if_a_quote_is_cut) {
  ::setenv("MLFLOW_TRACKING_TOKEN", "hunter2hunter2", 1);
  http_reply reply;
  reply.status = 400;
  for (std::size_t n = 280; n < 302; ++n) {
    reply.body = std::string(n, 'x') + "hunter2hunter2";
    auto text =
      failure_of(request, reply, reply_author::service).reason.message;
    EXPECT_EQ(text.find("hunt"), std::string::npos) << n;
  }
  ::unsetenv("MLFLOW_TRACKING_TOKEN");
}

} // namespace
} // namespace troupe::internal::test
