#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "troupe/runtime/error.hpp"

struct x509_st;
struct evp_pkey_st;

namespace troupe::internal {

/// The two sides of a connection between hosts.
enum class host_role : std::uint8_t { driver, agent };

/// What the certificate of a *role* in *run* is made out to: "driver.<run>".
/// Names of hosts and addresses play no part, so aliases, several interfaces
/// and address translation do not matter.
std::string certificate_name(host_role role, std::string_view run);

/// `ec::invalid_config` unless *run* can be a part of a certificate's name:
/// 1 to 64 letters, digits and '-'.
expected<void> check_run_name(std::string_view run);

/// Bytes that are overwritten before their memory is freed.
class secret_bytes {
public:
  secret_bytes() = default;

  /// Takes the content of *bytes*, and overwrites it there.
  explicit secret_bytes(std::string&& bytes);

  secret_bytes(const secret_bytes&) = default;
  secret_bytes(secret_bytes&& other) noexcept;
  secret_bytes& operator=(secret_bytes other) noexcept;
  ~secret_bytes() { wipe(bytes_); }

  std::string_view view() const noexcept { return bytes_; }

  /// Overwrites and empties *bytes*.
  static void wipe(std::string& bytes) noexcept;

private:
  std::string bytes_;
};

/// What one side of a connection shows, and what it checks the other side by.
struct credentials {
  std::string authority;   ///< Certificate in DER.
  std::string certificate; ///< In DER.
  secret_bytes key;        ///< PKCS #8 in DER, not encrypted.
};

/// What a certificate allows, and when.
struct certificate_terms {
  /// The clocks of hosts differ.
  static constexpr auto clock_margin = std::chrono::hours{48};

  /// Longer than any run; the next start of a run makes new certificates.
  static constexpr auto lifetime = std::chrono::hours{24} * 366;

  std::string name;
  std::string usage = "serverAuth,clientAuth";
  std::chrono::system_clock::time_point from =
    std::chrono::system_clock::now() - clock_margin;
  std::chrono::system_clock::time_point until =
    std::chrono::system_clock::now() + lifetime;
};

/// The authority of one start of a run. Its key is only in memory, and gone
/// with this object.
class certificate_authority {
public:
  static expected<certificate_authority> make(std::string_view run);

  certificate_authority(certificate_authority&&) noexcept;
  certificate_authority& operator=(certificate_authority&&) noexcept;
  ~certificate_authority();

  /// A certificate with a new key.
  expected<credentials> issue(const certificate_terms& terms) const;

private:
  certificate_authority() = default;

  struct parts;
  std::unique_ptr<parts> parts_;
};

/// The certificates of one start of a run.
struct run_certificates {
  credentials driver;
  credentials agent; ///< Of all agents.
};

/// Makes an authority and its two certificates (P-256) in about 2 ms.
expected<run_certificates> make_certificates(std::string_view run);

/// `ec::corrupt` unless the certificate of *own* is made out to *name*, by its
/// authority, and the key is its own.
expected<void> check_credentials(const credentials& own,
                                 const std::string& name);

/// The certificate in *der*, which errors call *what*, and the key; never null.
expected<std::shared_ptr<x509_st>> decode_certificate(std::string_view der,
                                                      std::string_view what);
expected<std::shared_ptr<evp_pkey_st>> decode_key(const secret_bytes& der);

/// What `credentials` hold; none is null.
struct decoded_credentials {
  std::shared_ptr<x509_st> authority;
  std::shared_ptr<x509_st> certificate;
  std::shared_ptr<evp_pkey_st> key;
};

expected<decoded_credentials> decode(const credentials& x);

} // namespace troupe::internal
