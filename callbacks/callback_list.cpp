#include "troupe/callbacks/callback_list.hpp"

#include <cstdlib>
#include <exception>
#include <string>
#include <typeinfo>
#include <utility>

#include <cxxabi.h>

namespace troupe {

namespace {

std::string type_name(const user_callback& x) {
  int status = 0;
  std::unique_ptr<char, decltype(&std::free)> name{
    abi::__cxa_demangle(typeid(x).name(), nullptr, nullptr, &status),
    std::free};
  return status == 0 ? name.get() : typeid(x).name();
}

} // namespace

callback_list::callback_list(
  std::vector<std::shared_ptr<user_callback>> callbacks, callback_errors policy,
  clock_function now)
  : callbacks_(std::move(callbacks)), policy_(policy), now_(std::move(now)) {
  std::erase(callbacks_, nullptr);
}

callback_outcome callback_list::before_run(const run_context& run) {
  return round("before_run", false,
               [&](user_callback& x) { x.before_run(run); });
}

callback_outcome
callback_list::after_report(const run_context& run,
                            const std::vector<metrics>& values,
                            const std::optional<checkpoint>& data) {
  return round("after_report", false,
               [&](user_callback& x) { x.after_report(run, values, data); });
}

callback_outcome
callback_list::after_exception(const run_context& run,
                               const std::map<int, rank_failure>& failures) {
  return round("after_exception", false,
               [&](user_callback& x) { x.after_exception(run, failures); });
}

callback_outcome callback_list::after_run(const run_context& run,
                                          const result& outcome) {
  return round("after_run", true,
               [&](user_callback& x) { x.after_run(run, outcome); });
}

callback_outcome
callback_list::round(std::string_view hook, bool call_all,
                     const std::function<void(user_callback&)>& call) {
  callback_outcome result;
  auto start = now_();
  for (std::size_t i = 0; i < callbacks_.size() && (!result.abort || call_all);
       ++i) {
    auto failed = [&](std::string_view what) {
      result.errors.push_back(
        {ec::callback_failed,
         "callback " + std::to_string(i + 1) + " (" + type_name(*callbacks_[i])
           + ") threw in " + std::string{hook} + ": " + std::string{what}});
      result.abort = policy_ == callback_errors::abort;
    };
    try {
      call(*callbacks_[i]);
    } catch (const std::exception& x) {
      failed(x.what());
    } catch (...) {
      failed("an exception that is no std::exception");
    }
  }
  result.spent = now_() - start;
  spent_ += result.spent;
  return result;
}

} // namespace troupe
