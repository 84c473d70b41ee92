#include "troupe/runtime/process/system_failure.hpp"

#include <system_error>

namespace troupe {

tl::unexpected<error> system_failure(ec code, std::string what,
                                     int error_number) {
  what += ": " + std::system_category().message(error_number);
  return failure(code, std::move(what));
}

} // namespace troupe
