#pragma once

#include <string>

namespace troupe::internal {

/// What the leaders of hosts show each other if gradients between hosts are
/// encrypted: a certificate of its own authority, which lets no one in at the
/// door. It has a key, and stays out of logs, files and the environment.
struct link_papers {
  std::string authority;   ///< Certificate in DER.
  std::string certificate; ///< In DER.
  std::string key;         ///< PKCS #8 in DER.

  bool operator==(const link_papers&) const = default;
};

template <class Inspector>
bool inspect(Inspector& f, link_papers& x) {
  return f.object(x).fields(f.field("authority", x.authority),
                            f.field("certificate", x.certificate),
                            f.field("key", x.key));
}

} // namespace troupe::internal
