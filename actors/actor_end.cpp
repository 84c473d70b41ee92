#include "troupe/actors/actor_end.hpp"

#include "troupe/actors/protocol/error_code.hpp"

namespace troupe {

std::string text_of(const caf::error& x) {
  if (x.category() == caf::type_id_v<ec>)
    return from_caf(x).message;
  return caf::to_string(x);
}

caf::error from_exception(std::exception_ptr& x) {
  try {
    std::rethrow_exception(x);
  } catch (const std::exception& problem) {
    return to_caf({ec::protocol, problem.what()});
  } catch (...) {
    return to_caf({ec::protocol, "an exception that is not a std::exception"});
  }
}

} // namespace troupe
