#include "troupe/actors/door/certificates.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include <openssl/crypto.h>
#include <openssl/rand.h>

#include "troupe/actors/door/openssl.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

using pkcs8_ptr =
  std::unique_ptr<PKCS8_PRIV_KEY_INFO, openssl_free<&PKCS8_PRIV_KEY_INFO_free>>;

expected<evp_pkey_ptr> new_key() {
  evp_pkey_ptr key{EVP_EC_gen("P-256")};
  if (!key)
    return openssl_failure(ec::unsupported, "no key could be made");
  return key;
}

bool add_extension(X509* to, X509* issuer, int what, const std::string& value) {
  X509V3_CTX context{};
  X509V3_set_ctx(&context, issuer, to, nullptr, nullptr, 0);
  std::unique_ptr<X509_EXTENSION, openssl_free<&X509_EXTENSION_free>> made{
    X509V3_EXT_conf_nid(nullptr, &context, what, value.c_str())};
  return made && X509_add_ext(to, made.get(), -1) == 1;
}

bool set_time(ASN1_TIME* to, std::chrono::system_clock::time_point time) {
  return ASN1_TIME_set(to, std::chrono::system_clock::to_time_t(time))
         != nullptr;
}

bool set_common_name(X509* to, const std::string& name) {
  return X509_NAME_add_entry_by_txt(
           X509_get_subject_name(to), "CN", MBSTRING_ASC,
           reinterpret_cast<const unsigned char*>(name.data()),
           static_cast<int>(name.size()), -1, 0)
         == 1;
}

/// A certificate for *key* with a random number, not signed.
x509_ptr draft_certificate(EVP_PKEY* key, const std::string& common_name,
                           const certificate_terms& terms) {
  x509_ptr result{X509_new()};
  std::uint64_t serial = 0;
  auto ok =
    result
    && RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof(serial))
         == 1
    && X509_set_version(result.get(), X509_VERSION_3) == 1
    && ASN1_INTEGER_set_uint64(X509_get_serialNumber(result.get()), serial >> 1)
         == 1
    && set_time(X509_getm_notBefore(result.get()), terms.from)
    && set_time(X509_getm_notAfter(result.get()), terms.until)
    && X509_set_pubkey(result.get(), key) == 1
    && set_common_name(result.get(), common_name);
  return ok ? std::move(result) : nullptr;
}

template <class T, class Encode>
std::string encoded(T* x, Encode encode) {
  auto size = encode(x, nullptr);
  std::string result(static_cast<std::size_t>(std::max(size, 0)), '\0');
  if (size > 0) {
    auto begin = reinterpret_cast<unsigned char*>(result.data());
    encode(x, &begin);
  }
  return result;
}

expected<secret_bytes> encoded_key(EVP_PKEY* key) {
  pkcs8_ptr info{EVP_PKEY2PKCS8(key)};
  secret_bytes result{info ? encoded(info.get(), &i2d_PKCS8_PRIV_KEY_INFO)
                           : std::string{}};
  if (result.view().empty())
    return openssl_failure(ec::unsupported, "a new key could not be encoded");
  return result;
}

/// Whether both halves of *key* belong together; reading it does not check
/// that.
bool is_sound(EVP_PKEY* key) {
  std::unique_ptr<EVP_PKEY_CTX, openssl_free<&EVP_PKEY_CTX_free>> context{
    EVP_PKEY_CTX_new_from_pkey(nullptr, key, nullptr)};
  return context && EVP_PKEY_pairwise_check(context.get()) == 1;
}

} // namespace

std::string certificate_name(host_role role, std::string_view run) {
  return concat(role == host_role::driver ? "driver." : "agent.", run);
}

expected<void> check_run_name(std::string_view run) {
  auto fits = [](char c) { return is_letter(c) || is_digit(c) || c == '-'; };
  if (run.empty() || run.size() > 64 || !std::ranges::all_of(run, fits))
    return failure(ec::invalid_config,
                   concat("a run cannot be called '", utf8_text(run),
                          "' between hosts: 1 to 64 letters, digits and '-'"));
  return {};
}

// -- secret bytes -------------------------------------------------------------

secret_bytes::secret_bytes(std::string&& bytes) : bytes_(std::move(bytes)) {
  wipe(bytes); // A short text was copied.
}

secret_bytes::secret_bytes(secret_bytes&& other) noexcept
  : bytes_(std::move(other.bytes_)) {
  wipe(other.bytes_);
}

secret_bytes& secret_bytes::operator=(secret_bytes other) noexcept {
  bytes_.swap(other.bytes_);
  return *this;
}

void secret_bytes::wipe(std::string& bytes) noexcept {
  bytes.resize(bytes.capacity()); // What it held before counts, too.
  OPENSSL_cleanse(bytes.data(), bytes.size());
  bytes.clear();
}

// -- authority ----------------------------------------------------------------

struct certificate_authority::parts {
  x509_ptr certificate;
  evp_pkey_ptr key;
};

certificate_authority::certificate_authority(certificate_authority&&) noexcept =
  default;

certificate_authority&
certificate_authority::operator=(certificate_authority&&) noexcept = default;

certificate_authority::~certificate_authority() = default;

expected<certificate_authority>
certificate_authority::make(std::string_view run) {
  ERR_clear_error();
  TROUPE_TRY_VOID(check_run_name(run));
  TROUPE_TRY(auto key, new_key());
  // A name of its own distinguishes the authorities of two starts of a run.
  std::uint64_t start = 0;
  RAND_bytes(reinterpret_cast<unsigned char*>(&start), sizeof(start));
  std::string name = "authority ";
  append_hex(name, start);
  auto made = draft_certificate(key.get(), name, certificate_terms{});
  if (!made
      || X509_set_issuer_name(made.get(), X509_get_subject_name(made.get()))
           != 1
      || !add_extension(made.get(), made.get(), NID_basic_constraints,
                        "critical,CA:TRUE,pathlen:0")
      || !add_extension(made.get(), made.get(), NID_key_usage,
                        "critical,keyCertSign")
      || X509_sign(made.get(), key.get(), EVP_sha256()) == 0)
    return openssl_failure(ec::unsupported,
                           "no authority could be made for the run's hosts");
  certificate_authority result;
  result.parts_ =
    std::make_unique<parts>(parts{std::move(made), std::move(key)});
  return result;
}

expected<credentials>
certificate_authority::issue(const certificate_terms& terms) const {
  ERR_clear_error();
  TROUPE_TRY(auto key, new_key());
  auto issuer = parts_->certificate.get();
  // A common name has at most 64 characters; only the alternative name counts.
  auto made = draft_certificate(
    key.get(), terms.name.substr(0, terms.name.find('.')), terms);
  if (!made
      || X509_set_issuer_name(made.get(), X509_get_subject_name(issuer)) != 1
      || !add_extension(made.get(), issuer, NID_basic_constraints,
                        "critical,CA:FALSE")
      || !add_extension(made.get(), issuer, NID_key_usage,
                        "critical,digitalSignature")
      || !add_extension(made.get(), issuer, NID_ext_key_usage, terms.usage)
      || !add_extension(made.get(), issuer, NID_subject_alt_name,
                        "DNS:" + terms.name)
      || X509_sign(made.get(), parts_->key.get(), EVP_sha256()) == 0)
    return openssl_failure(ec::unsupported,
                           "no certificate could be made for " + terms.name);
  TROUPE_TRY(auto secret, encoded_key(key.get()));
  return credentials{encoded(issuer, &i2d_X509), encoded(made.get(), &i2d_X509),
                     std::move(secret)};
}

expected<run_certificates> make_certificates(std::string_view run) {
  TROUPE_TRY(auto authority, certificate_authority::make(run));
  certificate_terms terms;
  terms.name = certificate_name(host_role::driver, run);
  TROUPE_TRY(auto driver, authority.issue(terms));
  terms.name = certificate_name(host_role::agent, run);
  TROUPE_TRY(auto agent, authority.issue(terms));
  return run_certificates{std::move(driver), std::move(agent)};
}

// -- reading ------------------------------------------------------------------

expected<std::shared_ptr<x509_st>> decode_certificate(std::string_view der,
                                                      std::string_view what) {
  ERR_clear_error();
  auto begin = reinterpret_cast<const unsigned char*>(der.data());
  auto end = begin + der.size();
  std::shared_ptr<x509_st> result{
    d2i_X509(nullptr, &begin, static_cast<long>(der.size())), &X509_free};
  if (!result || begin != end) {
    ERR_clear_error();
    return failure(ec::corrupt, concat(what, " is not a certificate"));
  }
  return result;
}

expected<std::shared_ptr<evp_pkey_st>> decode_key(const secret_bytes& der) {
  ERR_clear_error();
  auto begin = reinterpret_cast<const unsigned char*>(der.view().data());
  auto end = begin + der.view().size();
  pkcs8_ptr info{d2i_PKCS8_PRIV_KEY_INFO(nullptr, &begin,
                                         static_cast<long>(der.view().size()))};
  std::shared_ptr<evp_pkey_st> result{
    info && begin == end ? EVP_PKCS82PKEY(info.get()) : nullptr,
    &EVP_PKEY_free};
  if (!result) {
    ERR_clear_error();
    return failure(ec::corrupt,
                   "the key is not one without a passphrase (PKCS #8)");
  }
  return result;
}

expected<decoded_credentials> decode(const credentials& x) {
  decoded_credentials result;
  TROUPE_TRY(result.authority,
             decode_certificate(x.authority, "the authority"));
  TROUPE_TRY(result.certificate,
             decode_certificate(x.certificate, "the certificate"));
  TROUPE_TRY(result.key, decode_key(x.key));
  return result;
}

expected<void> check_credentials(const credentials& own,
                                 const std::string& name) {
  TROUPE_TRY(auto decoded, decode(own));
  auto& [authority, certificate, key] = decoded;
  auto signer = X509_get0_pubkey(authority.get());
  auto is_named = X509_check_host(certificate.get(), name.data(), name.size(),
                                  X509_CHECK_FLAG_NEVER_CHECK_SUBJECT
                                    | X509_CHECK_FLAG_NO_WILDCARDS,
                                  nullptr)
                  == 1;
  auto is_signed =
    signer != nullptr && X509_verify(certificate.get(), signer) == 1;
  auto fits = X509_check_private_key(certificate.get(), key.get()) == 1
              && is_sound(key.get());
  ERR_clear_error();
  if (!is_named)
    return failure(ec::corrupt, "the certificate is not that of " + name);
  if (!is_signed)
    return failure(ec::corrupt,
                   "the certificate of " + name + " is of another authority");
  if (!fits)
    return failure(ec::corrupt,
                   "the key is not that of the certificate of " + name);
  return {};
}

} // namespace troupe::internal
