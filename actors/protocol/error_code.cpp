#include "troupe/actors/protocol/error_code.hpp"

#include <caf/exit_reason.hpp>
#include <caf/sec.hpp>

namespace troupe {

using namespace internal;

namespace {

constexpr auto last_code = static_cast<std::uint8_t>(last_ec);

} // namespace

bool from_string(std::string_view text, ec& x) {
  for (std::uint8_t value = 0; value <= last_code; ++value) {
    if (text == to_string(static_cast<ec>(value))) {
      x = static_cast<ec>(value);
      return true;
    }
  }
  return false;
}

bool from_integer(std::uint8_t value, ec& x) {
  if (value > last_code)
    return false;
  x = static_cast<ec>(value);
  return true;
}

caf::error to_caf(const error& x) {
  if (!x)
    return {};
  return caf::make_error(x.code, x.message);
}

error from_caf(const caf::error& x) {
  if (x == caf::none)
    return {};
  if (is_ours(x)) {
    error result{static_cast<ec>(x.code()), {}};
    if (auto context = x.context(); context.match_elements<std::string>())
      result.message = context.get_as<std::string>(0);
    return result;
  }
  if (x == caf::sec::request_timeout)
    return {ec::timeout, "no answer in time"};
  return {ec::protocol, "the connection is gone: " + caf::to_string(x)};
}

std::string internal::text_of(const caf::error& x) {
  if (is_ours(x))
    return from_caf(x).message;
  return caf::to_string(x);
}

caf::error internal::from_exception(std::exception_ptr& x) {
  try {
    std::rethrow_exception(x);
  } catch (...) {
    return to_caf({ec::protocol, text_of_current_exception()});
  }
}

bool internal::is_ours(const caf::error& x) {
  return x.category() == caf::type_id_v<ec>;
}

caf::error internal::unfinished(std::string why) {
  return to_caf({ec::stopped, std::move(why)});
}

bool internal::says_unfinished(const caf::error& x) {
  return x == ec::stopped;
}

} // namespace troupe
