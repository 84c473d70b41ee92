#include "troupe/trainers/call_user_code.hpp"

#include <cxxabi.h>
#include <unistd.h>

#include <typeinfo>

#include <boost/core/demangle.hpp>

#include "troupe/runtime/process/forked_process.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe::internal {

namespace {

std::string type_of_exception() {
  auto type = abi::__cxa_current_exception_type();
  return type ? boost::core::demangle(type->name()) : std::string{};
}

call_outcome outcome_of(const std::function<void()>& code) {
  try {
    code();
    return {};
  } catch (const run_stopped& x) {
    return {x.reason(), true};
  } catch (const train_error& x) {
    return {x.reason(), false, type_of_exception()};
  } catch (...) {
    return {{ec::rank_failed, text_of_current_exception()},
            false,
            type_of_exception()};
  }
}

} // namespace

call_outcome call_user_code(std::string_view where,
                            const std::function<void()>& code) {
  auto process = ::getpid();
  auto outcome = outcome_of(code);
  leave_if_forked(process, where, outcome.reason);
  return outcome;
}

error call_rank_hook(std::string_view name, const std::function<void()>& hook) {
  auto where = "the hook " + std::string{name};
  auto [reason, stopped, type] = call_user_code(where, hook);
  if (reason && !stopped)
    reason.message = where + " threw: " + reason.message;
  return reason;
}

} // namespace troupe::internal
