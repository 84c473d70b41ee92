#include <csignal>
#include <cstdio>
#include <thread>

#include <sys/socket.h>
#include <sys/time.h>

#include <openssl/ssl.h>

#include <gtest/gtest.h>

#include "tests/support/environment_guard.hpp"
#include "tests/support/tcp.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/tls_certificate.hpp"
#include "troupe/callbacks/http/http_client.hpp"

namespace troupe::internal::test {
namespace {

using kind = http_failure::kind;

/// Answers every request over TLS with the common name of the client's
/// certificate, `no one` if it has none.
class tls_server {
public:
  explicit tls_server(const tls_certificate& own)
    : context_(SSL_CTX_new(TLS_server_method()), &SSL_CTX_free) {
    SSL_CTX_use_certificate(context_.get(), own.certificate.get());
    SSL_CTX_use_PrivateKey(context_.get(), own.key.get());
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER,
                       [](int, X509_STORE_CTX*) { return 1; });
    thread_ = std::thread{[this] { serve(); }};
  }

  ~tls_server() {
    ::shutdown(listener_.descriptor(), SHUT_RDWR);
    thread_.join();
  }

  tls_server(const tls_server&) = delete;
  tls_server& operator=(const tls_server&) = delete;

  std::string url() const {
    return "https://127.0.0.1:" + std::to_string(listener_.port()) + "/";
  }

private:
  void serve() {
    // OpenSSL writes to clients that have closed the connection.
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
    while (auto socket = listener_.accept()) {
      timeval limit{10, 0};
      ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit,
                   sizeof(limit));
      std::unique_ptr<SSL, decltype(&SSL_free)> ssl{SSL_new(context_.get()),
                                                    &SSL_free};
      SSL_set_fd(ssl.get(), socket.get());
      char buffer[4096];
      if (SSL_accept(ssl.get()) == 1
          && SSL_read(ssl.get(), buffer, sizeof(buffer)) > 0) {
        auto body = client_of(ssl.get());
        auto reply = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: "
                     + std::to_string(body.size()) + "\r\n\r\n" + body;
        SSL_write(ssl.get(), reply.data(), static_cast<int>(reply.size()));
        SSL_shutdown(ssl.get());
      }
    }
  }

  static std::string client_of(const SSL* ssl) {
    auto* certificate = SSL_get1_peer_certificate(ssl);
    if (!certificate)
      return "no one";
    char name[64];
    X509_NAME_get_text_by_NID(X509_get_subject_name(certificate),
                              NID_commonName, name, sizeof(name));
    X509_free(certificate);
    return name;
  }

  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_;
  plain_listener listener_;
  std::thread thread_;
};

class http_tls_test : public testing::Test {
protected:
  http_tls_test() { certificate.write(folder / "both.pem"); }

  http_result get(http_options options) {
    http_client client{std::move(options)};
    return client.send({.url = server.url()});
  }

  temporary_folder folder;
  tls_certificate certificate;
  tls_server server{certificate};
  std::string file = (folder / "both.pem").string();
};

TEST_F(http_tls_test, refuses_an_unknown_certificate) {
  auto reply = get({});
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().what, kind::untrusted) << reply.error().text;
}

TEST_F(http_tls_test, trusts_the_servers_of_the_file) {
  auto reply = get({.ca_file = file});
  ASSERT_TRUE(reply) << reply.error().text;
  EXPECT_EQ(reply->body, "no one");
}

TEST_F(http_tls_test, trusts_those_that_the_environment_names) {
  for (auto name : {"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"}) {
    std::map<std::string, std::string> variables{{"REQUESTS_CA_BUNDLE", ""},
                                                 {"CURL_CA_BUNDLE", ""},
                                                 {"SSL_CERT_FILE", ""}};
    variables[name] = file;
    environment_guard guard{variables};
    EXPECT_FALSE(get({.ca_file = "/no/ca.pem"})) << name;
    EXPECT_TRUE(get({})) << name;
  }
}

TEST_F(http_tls_test, trusts_the_servers_of_a_folder) {
  char name[32];
  auto hash =
    X509_NAME_hash_ex(X509_get_subject_name(certificate.certificate.get()),
                      nullptr, nullptr, nullptr);
  std::snprintf(name, sizeof(name), "%08lx.0", hash);
  fs::create_directory(folder / "authorities");
  fs::copy_file(file, folder / "authorities" / name);
  auto reply = get({.ca_file = (folder / "authorities").string()});
  EXPECT_TRUE(reply) << reply.error().text;
  EXPECT_FALSE(get({.ca_file = folder.path().string()}));
}

TEST_F(http_tls_test, trusts_anyone_on_request) {
  EXPECT_TRUE(get({.insecure_tls = true}));
}

TEST_F(http_tls_test, presents_its_own_certificate) {
  auto reply = get({.ca_file = file, .client_certificate = file});
  ASSERT_TRUE(reply) << reply.error().text;
  EXPECT_EQ(reply->body, "loopback");
}

TEST_F(http_tls_test, names_files_that_are_missing) {
  for (auto options : {http_options{.ca_file = "/no/ca.pem"},
                       http_options{.insecure_tls = true,
                       .client_certificate = "/no/own.pem"}}) {
    auto reply = get(options);
    ASSERT_FALSE(reply);
    EXPECT_EQ(reply.error().what, kind::untrusted);
    EXPECT_NE(reply.error().text.find("/no/"), std::string::npos)
      << reply.error().text;
  }
}

} // namespace
} // namespace troupe::internal::test
