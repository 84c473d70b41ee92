#include "troupe/runtime/process/random_hex.hpp"

#include <sys/random.h>

#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

expected<std::string> random_hex(std::size_t bytes) {
  std::string random(bytes, '\0');
  if (::getrandom(random.data(), bytes, 0) != static_cast<ssize_t>(bytes))
    return system_failure(ec::spawn, "the system gives no random numbers");
  std::string result;
  append_hex(result, random);
  return result;
}

} // namespace troupe::internal
