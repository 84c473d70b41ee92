#pragma once

#include <cstdio>
#include <memory>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "troupe/runtime/fs.hpp"

namespace troupe::internal::test {

/// A new self-signed certificate for 127.0.0.1, valid for an hour.
struct tls_certificate {
  tls_certificate() {
    ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
    X509_set_version(certificate.get(), X509_VERSION_3);
    X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -60);
    X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
    X509_set_pubkey(certificate.get(), key.get());
    auto* name = X509_get_subject_name(certificate.get());
    X509_NAME_add_entry_by_txt(
      name, "CN", MBSTRING_ASC,
      reinterpret_cast<const unsigned char*>("loopback"), -1, -1, 0);
    X509_set_issuer_name(certificate.get(), name);
    auto* names = X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name,
                                      "IP:127.0.0.1");
    X509_add_ext(certificate.get(), names, -1);
    X509_EXTENSION_free(names);
    X509_sign(certificate.get(), key.get(), EVP_sha256());
  }

  /// Writes it as PEM, followed by its key.
  void write(const fs::path& path) const {
    auto* file = std::fopen(path.c_str(), "we");
    PEM_write_X509(file, certificate.get());
    PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr,
                         nullptr);
    std::fclose(file);
  }

  std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key{EVP_EC_gen("P-256"),
                                                          &EVP_PKEY_free};
  std::unique_ptr<X509, decltype(&X509_free)> certificate{X509_new(),
                                                          &X509_free};
};

} // namespace troupe::internal::test
