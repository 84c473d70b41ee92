#include "troupe/trainers/loop_address.hpp"

namespace troupe::internal {

namespace {

std::string called(std::string_view hook) {
  return "the hook " + std::string{hook};
}

template <class Hook>
expected<std::optional<function_address>> locate_hook(const Hook& hook,
                                                      std::string_view name) {
  if (!hook)
    return std::nullopt;
  return locate(hook.address(), called(name));
}

template <class Hook>
expected<void> resolve_hook(const std::optional<function_address>& address,
                            std::string_view name, Hook& result) {
  if (!address)
    return {};
  TROUPE_TRY(auto code, resolve(*address, called(name)));
  result = Hook::from_address(code);
  return {};
}

} // namespace

expected<loop_spec> locate_loop(const train_loop& loop) {
  loop_spec result;
  TROUPE_TRY(result.entry, locate(reinterpret_cast<const void*>(loop.entry)));
  TROUPE_TRY(result.loop, locate(loop.loop));
  result.config = loop.config;
  auto& from = loop.hooks;
  auto& to = result.hooks;
  TROUPE_TRY(to.before_loop, locate_hook(from.before_loop, "before_loop"));
  TROUPE_TRY(to.after_loop, locate_hook(from.after_loop, "after_loop"));
  TROUPE_TRY(to.on_report, locate_hook(from.on_report, "on_report"));
  return result;
}

expected<train_loop> resolve_loop(const loop_spec& spec) {
  train_loop result;
  TROUPE_TRY(auto entry, resolve(spec.entry));
  result.entry =
    reinterpret_cast<train_loop::entry_type>(const_cast<void*>(entry));
  TROUPE_TRY(result.loop, resolve(spec.loop));
  result.config = spec.config;
  auto& from = spec.hooks;
  auto& to = result.hooks;
  TROUPE_TRY_VOID(
    resolve_hook(from.before_loop, "before_loop", to.before_loop));
  TROUPE_TRY_VOID(resolve_hook(from.after_loop, "after_loop", to.after_loop));
  TROUPE_TRY_VOID(resolve_hook(from.on_report, "on_report", to.on_report));
  return result;
}

} // namespace troupe::internal
