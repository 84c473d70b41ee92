#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/x509v3.h>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

/// Frees an object of OpenSSL with its own function.
template <auto Free>
struct openssl_free {
  template <class T>
  void operator()(T* x) const noexcept {
    Free(x);
  }
};

using x509_ptr = std::unique_ptr<X509, openssl_free<&X509_free>>;
using evp_pkey_ptr = std::unique_ptr<EVP_PKEY, openssl_free<&EVP_PKEY_free>>;

/// Empties this thread's error queue and returns its reasons, oldest first.
inline std::string take_openssl_reasons() {
  std::string result;
  while (auto code = ERR_get_error()) {
    auto reason = ERR_reason_error_string(code);
    append_item(result, reason != nullptr ? reason : "unknown reason", "; ");
  }
  return result;
}

/// *what* and the reasons of this thread's error queue as a failure.
inline tl::unexpected<error> openssl_failure(ec code, std::string_view what) {
  auto reasons = take_openssl_reasons();
  return failure(code, std::string{what} + ": "
                         + (reasons.empty() ? "no reason given" : reasons));
}

} // namespace troupe::internal
