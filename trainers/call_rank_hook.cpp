#include "troupe/trainers/call_rank_hook.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "troupe/runtime/process/secrets.hpp"
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
  leave_if_forked(process, result);
  return result;
}

void leave_if_forked(pid_t rank_process, const error& failure) {
  if (::getpid() == rank_process)
    return;
  if (failure)
    std::fprintf(stderr, "troupe: process %d, which process %d forked: %s\n",
                 ::getpid(), rank_process, redacted(failure.message).c_str());
  std::cout.flush();
  std::clog.flush();
  std::fflush(nullptr);
  ::_exit(failure ? EXIT_FAILURE : EXIT_SUCCESS);
}

} // namespace troupe::internal
