#include "troupe/callbacks/prometheus/page_server.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>

#include "tests/support/few_descriptors.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe::internal {
namespace {

int port_of(const page_server& x) {
  return std::stoi(x.address().substr(x.address().find(':') + 1));
}

sockaddr_in name_of(const page_server& x) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  result.sin_port = htons(static_cast<std::uint16_t>(port_of(x)));
  return result;
}

unique_fd connect_to(const page_server& x) {
  unique_fd result{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  auto name = name_of(x);
  EXPECT_EQ(
    ::connect(result.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)),
    0);
  return result;
}

void put(const unique_fd& to, const std::string& bytes) {
  EXPECT_EQ(::send(to.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

// All until the server closes.
std::string rest_of(const unique_fd& from) {
  std::string result;
  char buffer[4096];
  for (ssize_t n; (n = ::recv(from.get(), buffer, sizeof(buffer), 0)) > 0;)
    result.append(buffer, static_cast<std::size_t>(n));
  return result;
}

// Threads of this process.
std::set<std::string> threads() {
  std::set<std::string> result;
  for (fs::directory_iterator i{"/proc/self/task"}, end; i != end; ++i)
    result.insert(i->path().filename().string());
  return result;
}

// How often the thread with this *status* went to sleep by itself.
long sleeps_in(const unique_fd& status) {
  char text[8192] = {};
  EXPECT_GT(::pread(status.get(), text, sizeof(text) - 1, 0), 0);
  auto at = std::strstr(text, "\nvoluntary_ctxt_switches:");
  return at ? std::atol(at + 26) : -1;
}

class page_server_test : public testing::Test {
protected:
  std::string ask(const std::string& request) {
    auto socket = connect_to(*server);
    put(socket, request);
    return rest_of(socket);
  }

  void serve(std::chrono::milliseconds patience = std::chrono::minutes{1}) {
    auto made = page_server::start(
      "127.0.0.1", 0,
      {"/metrics", "text/x", [this] { return body; }, patience});
    ASSERT_TRUE(made) << made.error().message;
    server = std::move(*made);
  }

  std::string body = "page\n";
  std::unique_ptr<page_server> server;
};

TEST_F(page_server_test, serves_its_page) {
  serve();
  EXPECT_EQ(ask("GET /metrics HTTP/1.1\r\nHost: localhost:9\r\n\r\n"),
            "HTTP/1.1 200 OK\r\nContent-Type: text/x\r\nContent-Length: 5\r\n"
            "Connection: close\r\n\r\npage\n");
  EXPECT_TRUE(ask("GET /metrics?a=b HTTP/1.0\r\n\r\n").ends_with("page\n"));
}

TEST_F(page_server_test, leaves_out_the_body_for_head) {
  serve();
  auto reply = ask("HEAD /metrics HTTP/1.1\r\n\r\n");
  EXPECT_NE(reply.find("Content-Length: 5\r\n"), reply.npos);
  EXPECT_TRUE(reply.ends_with("\r\n\r\n"));
}

TEST_F(page_server_test, refuses_everything_else) {
  serve();
  EXPECT_TRUE(ask("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
  EXPECT_TRUE(
    ask("GET /metricsx HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
  auto post = ask("POST /metrics HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(post.starts_with("HTTP/1.1 405 "));
  EXPECT_NE(post.find("Allow: GET, HEAD\r\n"), post.npos);
  for (auto bad : {"\r\n\r\n", "GET\r\n\r\n", "GET /metrics\r\n\r\n",
                   "GET /metrics SMTP\r\n\r\n"})
    EXPECT_TRUE(ask(bad).starts_with("HTTP/1.1 400 ")) << bad;
}

TEST_F(page_server_test, refuses_long_requests) {
  serve();
  std::string fields = "X: " + std::string(http_server::max_request, 'x');
  EXPECT_TRUE(ask("GET /metrics HTTP/1.1\r\n" + fields + "\r\n\r\n")
                .starts_with("HTTP/1.1 431 "));
  EXPECT_TRUE(ask("GET /metrics HTTP/1.1\r\n" + fields + fields)
                .starts_with("HTTP/1.1 431 "));
}

TEST_F(page_server_test, drops_clients_that_stall) {
  serve(std::chrono::milliseconds{20});
  EXPECT_EQ(ask("GET /metr"), "");
  EXPECT_EQ(ask(""), "");
}

TEST_F(page_server_test, does_not_let_a_client_wait_for_another) {
  serve();
  auto slow = connect_to(*server);
  put(slow, "GET /metrics HT");
  EXPECT_TRUE(ask("GET /metrics HTTP/1.1\r\n\r\n").ends_with("page\n"));
  put(slow, "TP/1.1\r\n\r\n");
  EXPECT_TRUE(rest_of(slow).ends_with("page\n"));
}

TEST_F(page_server_test, serves_large_pages_completely) {
  body = std::string(20'000'000, 'x');
  serve();
  EXPECT_EQ(ask("GET /metrics HTTP/1.1\r\n\r\n").size(),
            body.size()
              + std::string{"HTTP/1.1 200 OK\r\nContent-Type: text/x"
                            "\r\nContent-Length: 20000000\r\n"
                            "Connection: close\r\n\r\n"}
                  .size());
}

TEST_F(page_server_test, limits_the_number_of_connections) {
  serve(std::chrono::milliseconds{100});
  std::vector<unique_fd> idle;
  for (std::size_t i = 0; i < 2 * http_server::max_connections; ++i)
    idle.push_back(connect_to(*server));
  // The idle ones are dropped in their time, then it is served.
  EXPECT_TRUE(ask("GET /metrics HTTP/1.1\r\n\r\n").ends_with("page\n"));
}

TEST_F(page_server_test, refuses_requests_for_another_name) {
  serve();
  for (auto host : {"rebound.example", "rebound.example:9099",
                    "localhost.example", "127.0.0.1.example", "x"}) {
    auto reply = ask("GET /metrics HTTP/1.1\r\nAccept: a\r\nhOsT: "
                     + std::string{host} + "\r\nX: y\r\n\r\n");
    EXPECT_TRUE(reply.starts_with("HTTP/1.1 421 ")) << host;
    EXPECT_EQ(reply.find("page"), reply.npos) << host;
  }
  for (auto host : {"localhost", "LOCALHOST:1", "127.0.0.1:9099", "[::1]:9099"})
    EXPECT_TRUE(
      ask("GET /metrics HTTP/1.1\r\nHost: " + std::string{host} + "\r\n\r\n")
        .ends_with("page\n"))
      << host;
}

TEST_F(page_server_test, accepts_any_name_at_an_address_of_the_network) {
  auto made = page_server::start("0.0.0.0", 0,
                                 {"/metrics", "text/x", [] { return "p"; }});
  ASSERT_TRUE(made) << made.error().message;
  server = std::move(*made);
  EXPECT_TRUE(ask("GET /metrics HTTP/1.1\r\nHost: node-7\r\n\r\n")
                .starts_with("HTTP/1.1 200 "));
}

TEST_F(page_server_test, lets_clients_wait_while_descriptors_are_exhausted) {
  auto others = threads();
  serve();
  auto all = threads();
  std::erase_if(all, [&](auto& x) { return others.contains(x); });
  ASSERT_EQ(all.size(), 1u);
  unique_fd status{
    ::open(("/proc/self/task/" + *all.begin() + "/status").c_str(),
           O_RDONLY | O_CLOEXEC)};
  ASSERT_TRUE(status);
  unique_fd client{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  auto name = name_of(*server);
  std::optional<test::few_descriptors> none{std::in_place};
  auto connected =
    ::connect(client.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name));
  // A thread that asks again and again never sleeps, and this never ends.
  auto enough = sleeps_in(status) + 5;
  while (connected == 0 && sleeps_in(status) < enough)
    std::this_thread::yield();
  none.reset();
  ASSERT_EQ(connected, 0);
  put(client, "GET /metrics HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(rest_of(client).ends_with("page\n"));
}

TEST_F(page_server_test, reports_that_a_page_could_not_be_made) {
  auto made = page_server::start("127.0.0.1", 0,
                                 {"/metrics", "text/x", []() -> std::string {
                                    throw std::runtime_error{"no status"};
                                  }});
  ASSERT_TRUE(made) << made.error().message;
  server = std::move(*made);
  EXPECT_TRUE(
    ask("GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 500 "));
}

TEST_F(page_server_test, ends_with_clients_connected) {
  serve();
  auto idle = connect_to(*server);
  server.reset();
  EXPECT_EQ(rest_of(idle), "");
}

TEST_F(page_server_test, names_the_address_that_it_cannot_serve) {
  serve();
  auto port = static_cast<std::uint16_t>(port_of(*server));
  auto taken = page_server::start("127.0.0.1", port, {"/", "", {}});
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ec::conflict);
  EXPECT_NE(taken.error().message.find(server->address()), std::string::npos);
  auto bad = page_server::start("localhost", 0, {"/", "", {}});
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code, ec::invalid_config);
}

} // namespace
} // namespace troupe::internal
