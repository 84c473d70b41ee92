#include "troupe/trainers/call_rank_hook.hpp"

#include <unistd.h>

#include <string>

#include "troupe/runtime/process/forked_process.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe::internal {

namespace {

error result_of(std::string_view name, const std::function<void()>& call) {
  auto failed = [&](ec code, std::string_view what) {
    return error{code, "the hook " + std::string{name}
                         + " threw: " + std::string{what}};
  };
  try {
    call();
    return {};
  } catch (const run_stopped& x) {
    return x.reason();
  } catch (const train_error& x) {
    return failed(x.reason().code, x.what());
  } catch (const std::exception& x) {
    return failed(ec::rank_failed, x.what());
  } catch (...) {
    return failed(ec::rank_failed, "an exception that is not a std::exception");
  }
}

} // namespace

error call_rank_hook(std::string_view name, const std::function<void()>& call) {
  auto process = ::getpid();
  auto result = result_of(name, call);
  leave_if_forked(process, "the hook " + std::string{name}, result);
  return result;
}

} // namespace troupe::internal
