#include "troupe/runtime/error.hpp"

#include <exception>
#include <system_error>

#include "troupe/runtime/fs.hpp"

namespace troupe {

using namespace internal;

std::string_view to_string(ec code) noexcept {
  switch (code) {
    case ec::none:
      return "none";
    case ec::invalid_config:
      return "invalid config";
    case ec::invalid_argument:
      return "invalid argument";
    case ec::not_initialized:
      return "not initialized";
    case ec::conflict:
      return "conflict";
    case ec::storage:
      return "storage";
    case ec::corrupt:
      return "corrupt";
    case ec::spawn:
      return "spawn";
    case ec::rank_failed:
      return "rank failed";
    case ec::callback_failed:
      return "callback failed";
    case ec::protocol:
      return "protocol";
    case ec::timeout:
      return "timeout";
    case ec::stopped:
      return "stopped";
    case ec::unsupported:
      return "unsupported";
    case ec::mailbox_full:
      return "mailbox full";
  }
  return "unknown";
}

namespace {

ec code_of_current_exception() {
  try {
    throw;
  } catch (const fs::filesystem_error&) {
    return ec::storage;
  } catch (const std::system_error&) {
    return ec::spawn;
  } catch (...) {
    return ec::protocol;
  }
}

} // namespace

error internal::caught(std::string_view what) noexcept {
  try {
    return {code_of_current_exception(),
            std::string{what} + ": " + text_of_current_exception()};
  } catch (...) {
    return {ec::protocol, "out of memory"}; // needs none
  }
}

std::string internal::text_of_current_exception() {
  try {
    throw;
  } catch (const std::exception& x) {
    return x.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

} // namespace troupe
