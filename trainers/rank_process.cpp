#include "troupe/trainers/rank_process.hpp"

#include <cstdio>

#include <caf/actor_system.hpp>

#include "troupe/actors/process_launcher.hpp"
#include "troupe/actors/transport/connect.hpp"
#include "troupe/actors/transport/network_thread.hpp"
#include "troupe/actors/transport/system_config.hpp"
#include "troupe/runtime/store/ranks_lock.hpp"
#include "troupe/trainers/rank_runner.hpp"

namespace troupe::internal {

namespace {

/// The hook at *address*, if the run has one.
template <class Hook>
expected<Hook> find_hook(const std::optional<function_address>& address,
                         std::string_view name) {
  if (!address)
    return Hook{};
  return resolve(*address, "the hook " + std::string{name})
    .map([](const void* code) { return Hook::from_address(code); });
}

expected<rank_hooks> find_hooks(const hook_spec& spec) {
  auto before = find_hook<decltype(rank_hooks::before_loop)>(spec.before_loop,
                                                             "before_loop");
  if (!before)
    return tl::unexpected<error>{std::move(before.error())};
  auto after =
    find_hook<decltype(rank_hooks::after_loop)>(spec.after_loop, "after_loop");
  if (!after)
    return tl::unexpected<error>{std::move(after.error())};
  auto report =
    find_hook<decltype(rank_hooks::on_report)>(spec.on_report, "on_report");
  if (!report)
    return tl::unexpected<error>{std::move(report.error())};
  return rank_hooks{*before, *after, *report};
}

expected<train_loop> find_loop(const loop_spec& spec) {
  auto entry = resolve(spec.entry);
  if (!entry)
    return tl::unexpected<error>{std::move(entry.error())};
  auto loop = resolve(spec.loop);
  if (!loop)
    return tl::unexpected<error>{std::move(loop.error())};
  auto hooks = find_hooks(spec.hooks);
  if (!hooks)
    return tl::unexpected<error>{std::move(hooks.error())};
  train_loop result;
  result.entry =
    reinterpret_cast<train_loop::entry_type>(const_cast<void*>(*entry));
  result.loop = *loop;
  result.config = spec.config;
  result.hooks = std::move(*hooks);
  return result;
}

expected<void> run(const std::string& payload,
                   const std::vector<int>& descriptors) {
  auto bootstrap = rank_bootstrap::from_bytes(payload);
  if (!bootstrap)
    return tl::unexpected<error>{std::move(bootstrap.error())};
  if (descriptors.size() < 3)
    return failure(ec::protocol,
                   "a rank process got no connection to its driver");
  auto lock = join_attempt({unique_fd{descriptors[2]}, bootstrap->token});
  if (!lock)
    return tl::unexpected<error>{std::move(lock.error())};
  lock->release(); // Open until this process ends.
  // Never destroyed: the process ends right after its goodbye, and an orderly
  // shutdown of the system would only delay that.
  static auto config = new system_config;
  static auto system = new caf::actor_system{config->with_own_network_thread()};
  static auto network = new network_thread{*system};
  static auto kept = new auto{std::make_shared<retired_contexts>()};
  auto group = connect<worker_group_actor>(*system, unique_fd{descriptors[1]});
  if (!group)
    return tl::unexpected<error>{std::move(group.error())};
  return run_rank(*system,
                  {std::move(*group), bootstrap->attempt, bootstrap->rank,
                   descriptors[0], find_loop, *kept, network});
}

} // namespace

int rank_process(std::string payload, std::vector<int> descriptors) {
  auto ok = run(payload, descriptors);
  if (ok)
    return 0;
  std::fprintf(stderr, "troupe: %s\n", ok.error().message.c_str());
  return 1;
}

} // namespace troupe::internal
