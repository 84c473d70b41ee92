#include "troupe/callbacks/http/http_client.hpp"

#include <gtest/gtest.h>

#include "tests/support/few_descriptors.hpp"
#include "tests/support/http_get.hpp"
#include "tests/support/loopback_server.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe::internal::test {
namespace {

using kind = http_failure::kind;

loopback_reply echo(const loopback_request& x) {
  loopback_reply reply;
  reply.body = x.method + " " + x.target + " " + x.body;
  return reply;
}

loopback_server::handler_type always(loopback_reply reply) {
  return [reply](const loopback_request&) { return reply; };
}

/// How a request to a server with *fault* fails.
kind failure_with(reply_fault fault) {
  loopback_server server{always({.body = "01", .fault = fault})};
  http_client client;
  auto reply =
    client.send({.url = server.url(), .timeout = std::chrono::seconds{1}});
  return reply ? kind::unusable : reply.error().what;
}

TEST(http_client_test, sends_method_headers_and_body_and_reads_the_reply) {
  loopback_server server{[](const loopback_request& x) {
    auto reply = echo(x);
    reply.status = 201;
    return reply;
  }};
  http_client client;
  auto reply = client.send({.method = "PATCH",
                            .url = server.url() + "/a?b=c",
                            .headers = {{"X-Mine", "42"}},
                            .body = std::string("x\0y", 3)});
  ASSERT_TRUE(reply) << reply.error().text;
  EXPECT_EQ(reply->status, 201);
  EXPECT_EQ(reply->body, std::string("PATCH /a?b=c x\0y", 16));
  EXPECT_EQ(server.requests()[0].headers.at("x-mine"), "42");
}

TEST(http_client_test, adds_no_content_type) {
  loopback_server server{echo};
  http_client client;
  ASSERT_TRUE(
    client.send({.method = "POST", .url = server.url(), .body = "a=b"}));
  ASSERT_TRUE(client.send({.method = "POST",
                           .url = server.url(),
                           .headers = {{"Content-Type", "text/x"}},
                           .body = "a=b"}));
  ASSERT_TRUE(client.send({.method = "POST", .url = server.url()}));
  auto seen = server.requests();
  EXPECT_FALSE(seen[0].headers.contains("content-type"));
  EXPECT_EQ(seen[1].headers.at("content-type"), "text/x");
  EXPECT_EQ(seen[2].headers.at("content-length"), "0");
}

TEST(http_client_test, streams_a_file_with_its_length) {
  loopback_server server{echo};
  temporary_folder folder;
  std::string bytes(3'000'000, 'x');
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<char>(i * 7 + i / 256);
  write_bytes(folder / "big", bytes);
  write_bytes(folder / "empty", "");
  http_client client;
  ASSERT_TRUE(client.send(
    {.method = "PUT", .url = server.url(), .file = folder / "big"}));
  ASSERT_TRUE(client.send(
    {.method = "PUT", .url = server.url(), .file = folder / "empty"}));
  auto seen = server.requests();
  EXPECT_EQ(seen[0].method, "PUT");
  EXPECT_TRUE(seen[0].body == bytes);
  EXPECT_EQ(seen[0].headers.at("content-length"), "3000000");
  EXPECT_EQ(seen[1].headers.at("content-length"), "0");
}

TEST(http_client_test, refuses_a_file_that_cannot_be_read) {
  loopback_server server{echo};
  http_client client;
  auto reply = client.send(
    {.method = "PUT", .url = server.url(), .file = "/nowhere/to/be"});
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().what, kind::unusable);
  EXPECT_NE(reply.error().text.find("/nowhere/to/be"), std::string::npos);
  EXPECT_TRUE(server.requests().empty());
}

TEST(http_client_test, knows_a_file_that_cannot_be_opened_now) {
  temporary_folder folder;
  write_bytes(folder / "a", "bytes");
  http_client client;
  few_descriptors none;
  auto reply = client.send(
    {.method = "PUT", .url = "http://127.0.0.1:1", .file = folder / "a"});
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().what, kind::unreadable) << reply.error().text;
}

TEST(http_client_test, sends_no_file_that_has_become_shorter) {
  // The kernel makes up its size.
  const fs::path shorter{"/sys/devices/system/cpu/online"};
  if (!fs::exists(shorter)
      || bytes_of(shorter).size() >= fs::file_size(shorter))
    GTEST_SKIP() << "there is no such " << shorter;
  loopback_server server{echo};
  http_client client;
  auto reply =
    client.send({.method = "PUT", .url = server.url(), .file = shorter});
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().what, kind::unreadable);
  EXPECT_EQ(reply.error().text, "the file became shorter while it was sent");
}

TEST(http_client_test, sends_forms_with_texts_and_files) {
  loopback_server server{echo};
  temporary_folder folder;
  write_bytes(folder / "a.txt", "of a file");
  http_client client;
  ASSERT_TRUE(
    client.send({.method = "POST",
                 .url = server.url(),
                 .form = {{.name = "one", .data = "of a text"},
                          {.name = "file", .file = folder / "a.txt"}}}));
  auto request = server.requests().at(0);
  EXPECT_TRUE(
    request.headers.at("content-type").starts_with("multipart/form-data"));
  EXPECT_NE(request.body.find("name=\"one\""), std::string::npos);
  EXPECT_NE(request.body.find("of a text"), std::string::npos);
  EXPECT_NE(request.body.find("of a file"), std::string::npos);
}

TEST(http_client_test, prefers_user_and_password_to_a_token) {
  loopback_server server{echo};
  http_client both{{.user = "u", .password = "p", .token = "t"}};
  http_client bearer{{.token = "t"}};
  ASSERT_TRUE(both.send({.url = server.url()}));
  ASSERT_TRUE(bearer.send({.url = server.url()}));
  bearer.use_token("newer");
  ASSERT_TRUE(bearer.send({.url = server.url()}));
  auto seen = server.requests();
  EXPECT_EQ(seen[0].headers.at("authorization"), "Basic dTpw");
  EXPECT_EQ(seen[1].headers.at("authorization"), "Bearer t");
  EXPECT_EQ(seen[2].headers.at("authorization"), "Bearer newer");
}

TEST(http_client_test,
     keeps_a_connection_but_for_requests_that_are_unrepeatable) {
  loopback_server server{echo};
  http_client client;
  ASSERT_TRUE(client.send({.url = server.url()}));
  ASSERT_TRUE(client.send({.url = server.url()}));
  ASSERT_TRUE(client.send({.url = server.url(), .repeatable = false}));
  auto seen = server.requests();
  EXPECT_EQ(seen[1].connection, seen[0].connection);
  EXPECT_NE(seen[2].connection, seen[0].connection);
}

TEST(http_client_test, returns_refusals_and_follows_no_redirect) {
  loopback_server server{always(
    {.status = 302, .body = "gone", .headers = {{"Location", "/other"}}})};
  http_client client;
  auto reply = client.send({.url = server.url()});
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 302);
  EXPECT_EQ(reply->redirect, server.url() + "/other");
  EXPECT_FALSE(reply->ok());
  EXPECT_EQ(server.requests().size(), 1u);
}

std::optional<std::chrono::seconds> pause_of(const std::string& text) {
  loopback_server server{
    always({.status = 429, .headers = {{"retry-AFTER", text}}})};
  http_client client;
  auto reply = client.send({.url = server.url()});
  EXPECT_TRUE(reply);
  return reply ? reply->retry_after : std::nullopt;
}

TEST(http_client_test, reads_when_to_retry_up_to_ten_minutes) {
  using std::chrono::seconds;
  EXPECT_EQ(pause_of(" 17 "), seconds{17});
  EXPECT_EQ(pause_of("601"), seconds{600});
  EXPECT_EQ(pause_of("Sun, 21 Nov 2300 05:00:00 GMT"), seconds{600});
  for (auto x : {"", "0", "-5", "soon", "Fri, 20 Nov 2020 23:00:00 GMT"})
    EXPECT_EQ(pause_of(x), std::nullopt) << x;
}

TEST(http_client_test, distinguishes_failures) {
  EXPECT_EQ(failure_with(reply_fault::close), kind::cut);
  EXPECT_EQ(failure_with(reply_fault::reset), kind::cut);
  EXPECT_EQ(failure_with(reply_fault::truncated), kind::cut);
  EXPECT_EQ(failure_with(reply_fault::hang), kind::timeout);
  EXPECT_EQ(failure_with(reply_fault::slow_body), kind::unusable)
    << "a slow body comes whole";
}

TEST(http_client_test, knows_that_the_server_has_not_seen_the_request) {
  http_client client;
  auto url = "http://127.0.0.1:" + std::to_string(free_port());
  auto reply = client.send({.url = url});
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().what, kind::unreachable);
}

TEST(http_client_test, speaks_no_other_protocol) {
  http_client client;
  for (const auto* url : {"file:///etc/hostname", "ftp://127.0.0.1/x", ":"}) {
    auto reply = client.send({.url = url});
    ASSERT_FALSE(reply) << url;
    EXPECT_EQ(reply.error().what, kind::unusable) << url;
  }
}

TEST(http_client_test, refuses_a_reply_over_the_limit) {
  loopback_server server{always({.body = std::string(2000, 'x')})};
  http_client client{{.max_reply = 1999}};
  auto reply = client.send({.url = server.url()});
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().what, kind::unusable);
  EXPECT_EQ(reply.error().text, "the reply is longer than 1999 bytes");
  http_client just{{.max_reply = 2000}};
  EXPECT_TRUE(just.send({.url = server.url()}));
}

TEST(http_client_test, ends_a_request_that_is_cancelled) {
  loopback_server server{always({.fault = reply_fault::hang})};
  std::stop_source source;
  std::jthread canceller{[&] {
    // Once it hangs.
    server.wait_for(1);
    source.request_stop();
  }};
  http_client client;
  auto reply =
    client.send({.url = server.url(), .timeout = std::chrono::hours{1}},
                source.get_token());
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().what, kind::cancelled);
  auto another = client.send({.url = server.url()}, source.get_token());
  ASSERT_FALSE(another);
  EXPECT_EQ(another.error().what, kind::cancelled);
}

} // namespace
} // namespace troupe::internal::test
