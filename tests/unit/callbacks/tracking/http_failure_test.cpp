#include "troupe/callbacks/tracking/http_failure.hpp"

#include <cstdlib>

#include <gtest/gtest.h>

namespace troupe::internal::test {
namespace {

using sink_kind = sink_failure::kind;

const http_request request{.method = "POST",
                           .url = "http://u:pass@host:1/api?api_key=k"};

TEST(http_failure_test, sorts_every_status) {
  auto kind_of = [](int status) {
    http_reply reply;
    reply.status = status;
    return failure_of(request, reply).what;
  };
  for (int status : {408, 429, 500, 502, 503, 504})
    EXPECT_EQ(kind_of(status), sink_kind::transient) << status;
  for (int status : {301, 302, 307, 308, 401, 403})
    EXPECT_EQ(kind_of(status), sink_kind::permanent) << status;
  for (int status : {400, 404, 405, 409, 413, 415, 422, 501})
    EXPECT_EQ(kind_of(status), sink_kind::rejected) << status;
}

TEST(http_failure_test, sorts_every_failure_without_a_reply) {
  using x = http_failure::kind;
  for (auto what :
       {x::unreachable, x::cut, x::timeout, x::cancelled, x::unreadable}) {
    auto failure = failure_of(request, http_failure{what, ""});
    EXPECT_EQ(failure.what, sink_kind::transient);
    EXPECT_EQ(failure.suspect, what == x::unreadable);
  }
  EXPECT_EQ(failure_of(request, http_failure{x::untrusted, ""}).what,
            sink_kind::permanent);
  EXPECT_EQ(failure_of(request, http_failure{x::unusable, ""}).what,
            sink_kind::rejected);
}

TEST(http_failure_test, quotes_the_message_of_a_json_reply) {
  http_reply reply;
  reply.status = 400;
  reply.body = R"({"error_code":"X","message":"Not  \n good"})";
  auto x = failure_of(request, reply, "Do this.");
  EXPECT_EQ(x.reason.message,
            "POST http://host:1/api: status 400: Not good; Do this.");
}

TEST(http_failure_test, suspects_the_records_of_a_500_alone) {
  http_reply reply;
  for (int status : {408, 429, 500, 502, 503, 504}) {
    reply.status = status;
    EXPECT_EQ(failure_of(request, reply).suspect, status == 500) << status;
  }
}

TEST(http_failure_test, quotes_the_beginning_of_any_other_reply) {
  http_reply reply;
  reply.status = 500;
  for (int i = 0; i < 200; ++i)
    reply.body += "<p>\r\n\xC3\xA4";
  auto text = failure_of(request, reply).reason.message;
  EXPECT_TRUE(text.starts_with(
    "POST http://host:1/api: status 500: <p> \xC3\xA4<p> \xC3\xA4"));
  EXPECT_TRUE(text.ends_with("..."));
  EXPECT_LT(text.size(), 400u);
}

TEST(http_failure_test, passes_on_the_requested_pause) {
  http_reply reply;
  reply.status = 503;
  reply.retry_after = std::chrono::seconds{5};
  EXPECT_EQ(failure_of(request, reply).retry_after, std::chrono::seconds{5});
}

TEST(http_failure_test, names_the_target_of_a_redirect) {
  http_reply reply;
  reply.status = 308;
  reply.redirect = "https://host/api?x";
  EXPECT_EQ(failure_of(request, reply).reason.message,
            "POST http://host:1/api: status 308, it is at https://host/api "
            "now");
}

TEST(http_failure_test, quotes_no_secret_even_if_a_quote_is_cut) {
  ::setenv("MLFLOW_TRACKING_TOKEN", "hunter2hunter2", 1);
  http_reply reply;
  reply.status = 400;
  for (std::size_t n = 280; n < 302; ++n) {
    reply.body = std::string(n, 'x') + "hunter2hunter2";
    auto text = failure_of(request, reply).reason.message;
    EXPECT_EQ(text.find("hunt"), std::string::npos) << n;
  }
  ::unsetenv("MLFLOW_TRACKING_TOKEN");
}

} // namespace
} // namespace troupe::internal::test
