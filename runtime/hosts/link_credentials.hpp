#pragma once

#include <string>

#include "troupe/runtime/each_field.hpp"

namespace troupe::internal {

/// What the leaders of hosts show each other if gradients between hosts are
/// encrypted: a certificate of its own authority, which lets no one in at the
/// door. It has a key, and stays out of logs, files and the environment.
struct link_credentials {
  std::string authority;   ///< Certificate in DER.
  std::string certificate; ///< In DER.
  std::string key;         ///< PKCS #8 in DER.

  bool operator==(const link_credentials&) const = default;
};

TROUPE_INSPECT(link_credentials, authority, certificate, key)

} // namespace troupe::internal
