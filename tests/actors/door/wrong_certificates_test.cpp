// Certificates that are not those of the run, at its door and at its agents.

#include <functional>
#include <ostream>

#include <gmock/gmock.h>
#include <openssl/ssl.h>

#include "tests/actors/door/door_fixture.hpp"
#include "tests/support/tls_certificate.hpp"
#include "troupe/actors/door/openssl.hpp"

namespace troupe::internal::test {

namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using fault = channel_fault;

struct wrong_certificate {
  const char* name;
  std::function<credentials(const door_certificates&)> make;
  channel_fault at_door;
  channel_fault at_agent;
};

void PrintTo(const wrong_certificate& x, std::ostream* out) {
  *out << x.name;
}

credentials issued(const door_certificates& by, certificate_terms terms) {
  return *by.authority.issue(terms);
}

certificate_terms agent_terms() {
  certificate_terms result;
  result.name = "agent.run1";
  return result;
}

credentials signed_by_itself(const door_certificates& certificates) {
  tls_certificate made;
  auto result = certificates.agent;
  auto encode = [](auto* x, auto function) {
    unsigned char* bytes = nullptr;
    auto size = function(x, &bytes);
    std::string text{reinterpret_cast<char*>(bytes),
                     static_cast<std::size_t>(size)};
    OPENSSL_free(bytes);
    return text;
  };
  result.certificate = encode(made.certificate.get(), &i2d_X509);
  std::unique_ptr<PKCS8_PRIV_KEY_INFO, openssl_free<&PKCS8_PRIV_KEY_INFO_free>>
    key{EVP_PKEY2PKCS8(made.key.get())};
  result.key = secret_bytes{encode(key.get(), &i2d_PKCS8_PRIV_KEY_INFO)};
  return result;
}

credentials of_another_authority(const door_certificates& certificates) {
  auto result = door_certificates{}.agent;
  result.authority = certificates.agent.authority;
  return result;
}

credentials that_expired(const door_certificates& certificates) {
  auto terms = agent_terms();
  terms.from = std::chrono::system_clock::now() - 48h;
  terms.until = std::chrono::system_clock::now() - 24h;
  return issued(certificates, terms);
}

credentials from_tomorrow(const door_certificates& certificates) {
  auto terms = agent_terms();
  terms.from = std::chrono::system_clock::now() + 24h;
  return issued(certificates, terms);
}

credentials of_another_run(const door_certificates& certificates) {
  auto terms = agent_terms();
  terms.name = "agent.other";
  return issued(certificates, terms);
}

credentials for_servers_only(const door_certificates& certificates) {
  auto terms = agent_terms();
  terms.usage = "serverAuth";
  return issued(certificates, terms);
}

credentials of_the_driver(const door_certificates& certificates) {
  return certificates.driver;
}

/// All of it belongs together, but not to this start of the run.
credentials of_an_earlier_start(const door_certificates&) {
  return door_certificates{}.agent;
}

class wrong_certificate_test
  : public door_test,
    public testing::WithParamInterface<wrong_certificate> {};

TEST_P(wrong_certificate_test, are_refused_with_their_cause) {
  open();
  auto own = GetParam().make(certificates);
  door_client agent{port(), door_certificates::identity_of(own)};
  EXPECT_FALSE(agent.enter());
  EXPECT_EQ(agent.channel->failure().cause, GetParam().at_agent)
    << agent.channel->failure().text;
  auto refusals = record.refusals(1);
  ASSERT_EQ(refusals.size(), 1u);
  EXPECT_EQ(refusals[0].cause, GetParam().at_door) << refusals[0].text;
  EXPECT_EQ(refusals[0].address, "127.0.0.1");
  EXPECT_EQ(refusals[0].count, 1u);
  EXPECT_FALSE(refusals[0].has_left);
}

INSTANTIATE_TEST_SUITE_P(
  door, wrong_certificate_test,
  testing::Values(
    wrong_certificate{"signed_by_itself", signed_by_itself,
                      fault::unknown_authority, fault::unknown_authority},
    wrong_certificate{"of_another_authority", of_another_authority,
                      fault::unknown_authority, fault::unknown_authority},
    wrong_certificate{"that_expired", that_expired, fault::expired,
                      fault::expired},
    wrong_certificate{"from_tomorrow", from_tomorrow, fault::not_yet_valid,
                      fault::bad_certificate},
    wrong_certificate{"of_another_run", of_another_run, fault::wrong_name,
                      fault::bad_certificate},
    wrong_certificate{"for_servers_only", for_servers_only, fault::wrong_usage,
                      fault::wrong_usage},
    wrong_certificate{"of_the_driver", of_the_driver, fault::wrong_name,
                      fault::bad_certificate},
    wrong_certificate{"of_an_earlier_start", of_an_earlier_start,
                      fault::unknown_authority, fault::unknown_authority}),
  [](const auto& x) { return x.param.name; });

TEST_F(door_test, is_not_taken_for_the_driver_with_another_certificate) {
  auto terms = agent_terms();
  terms.name = "driver.other";
  certificates.driver = *certificates.authority.issue(terms);
  open();
  door_client agent{port(), certificates.agent_identity()};
  EXPECT_FALSE(agent.enter());
  EXPECT_EQ(agent.channel->failure().cause, fault::wrong_name);
  EXPECT_FALSE(agent.channel->failure().by_peer);
  EXPECT_THAT(agent.channel->failure().text, HasSubstr("driver.run1"));
}

TEST_F(door_test, refuses_a_key_that_is_not_the_certificate_s) {
  certificates.agent.key = certificates.driver.key;
  EXPECT_EQ(tls_identity::make(certificates.agent, host_role::agent, "run1")
              .error()
              .code,
            ec::corrupt);
}

} // namespace

} // namespace troupe::internal::test
