#include "troupe/actors/door/certificates.hpp"

#include <algorithm>
#include <memory>
#include <string>

#include <gtest/gtest.h>
#include <openssl/pem.h>

#include "troupe/actors/door/openssl.hpp"

namespace troupe::internal {

namespace {

using namespace std::chrono_literals;

/// Whether *time* of a certificate lies before *other*.
bool is_before(const ASN1_TIME* time, std::chrono::system_clock::time_point x) {
  auto seconds = std::chrono::system_clock::to_time_t(x);
  return X509_cmp_time(time, &seconds) < 0;
}

TEST(certificates_test, names_the_role_and_the_run) {
  auto made = make_certificates("run1");
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_TRUE(check_credentials(made->driver, "driver.run1"));
  EXPECT_TRUE(check_credentials(made->agent, "agent.run1"));
  EXPECT_EQ(check_credentials(made->agent, "driver.run1").error().code,
            ec::corrupt);
  EXPECT_EQ(check_credentials(made->agent, "agent.run2").error().code,
            ec::corrupt);
}

TEST(certificates_test, are_valid_for_clocks_that_differ_by_two_days) {
  auto made = make_certificates("run1");
  ASSERT_TRUE(made);
  auto certificate = decode_certificate(made->agent.certificate, "it");
  ASSERT_TRUE(certificate);
  auto now = std::chrono::system_clock::now();
  EXPECT_TRUE(is_before(X509_get0_notBefore(certificate->get()), now - 47h));
  EXPECT_FALSE(is_before(X509_get0_notBefore(certificate->get()), now - 49h));
  EXPECT_FALSE(
    is_before(X509_get0_notAfter(certificate->get()), now + 24h * 365));
}

TEST(certificates_test, has_an_authority_of_its_own_for_each_start_of_a_run) {
  auto first = make_certificates("run1");
  auto second = make_certificates("run1");
  ASSERT_TRUE(first && second);
  first->agent.authority = second->agent.authority;
  EXPECT_EQ(check_credentials(first->agent, "agent.run1").error().code,
            ec::corrupt);
}

TEST(certificates_test, refuses_the_key_of_another_certificate) {
  auto made = make_certificates("run1");
  ASSERT_TRUE(made);
  made->agent.key = made->driver.key;
  EXPECT_EQ(check_credentials(made->agent, "agent.run1").error().code,
            ec::corrupt);
}

TEST(certificates_test, refuses_a_key_with_a_passphrase) {
  auto made = make_certificates("run1");
  ASSERT_TRUE(made);
  auto key = decode_key(made->agent.key);
  ASSERT_TRUE(key);
  std::unique_ptr<BIO, openssl_free<&BIO_free_all>> out{BIO_new(BIO_s_mem())};
  std::string passphrase = "open sesame";
  ASSERT_EQ(i2d_PKCS8PrivateKey_bio(
              out.get(), key->get(), EVP_aes_256_cbc(), passphrase.data(),
              static_cast<int>(passphrase.size()), nullptr, nullptr),
            1);
  char* bytes = nullptr;
  auto size = BIO_get_mem_data(out.get(), &bytes);
  made->agent.key =
    secret_bytes{std::string(bytes, static_cast<std::size_t>(size))};
  EXPECT_EQ(check_credentials(made->agent, "agent.run1").error().code,
            ec::corrupt);
}

TEST(certificates_test, refuses_names_of_runs_that_a_certificate_cannot_have) {
  for (auto name : {"", "two words", "a,DNS:driver.b", "a.b", "\xff"})
    EXPECT_EQ(make_certificates(name).error().code, ec::invalid_config) << name;
  EXPECT_EQ(make_certificates(std::string(65, 'x')).error().code,
            ec::invalid_config);
  EXPECT_TRUE(make_certificates(std::string(64, 'x')));
}

TEST(certificates_test, overwrites_what_it_has_emptied) {
  std::string text(100, 'k');
  auto* bytes = text.data();
  secret_bytes::wipe(text);
  EXPECT_TRUE(text.empty());
  EXPECT_EQ(std::count(bytes + 1, bytes + 100, 'k'), 0);
}

} // namespace

} // namespace troupe::internal
