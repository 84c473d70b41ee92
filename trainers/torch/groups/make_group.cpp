#include "troupe/trainers/torch/groups/make_group.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/forked_process.hpp"
#include "troupe/runtime/rank_names.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/timing.hpp"
#include "troupe/trainers/rank_link.hpp"
#include "troupe/trainers/torch/groups/abortable_group.hpp"
#include "troupe/trainers/torch/groups/c10d_groups.hpp"
#include "troupe/trainers/torch/groups/hierarchical_group.hpp"
#include "troupe/trainers/torch/groups/local_group.hpp"
#include "troupe/trainers/torch/groups/rendezvous_store.hpp"

namespace troupe::internal {

namespace {

using abort_function = std::function<void(const error&)>;

/// How long the end of a loop waits for connections to close; after that they
/// close in the background.
constexpr auto close_limit = std::chrono::seconds{1};

/// How long NCCL may take to start once all ranks are present: seconds are
/// usual.
constexpr auto start_limit = std::chrono::minutes{2};

template <class... Args>
[[noreturn]] void refuse(const train_context& context, ec code,
                         const Args&... what) {
  throw train_error{{code, c10::str("rank ", context.rank(), ": ", what...)}};
}

/// *config* with a timeout that does not overflow clocks.
torch_config checked(const train_context& context, torch_config config) {
  if (config.backend > backend::hierarchical)
    refuse(context, ec::invalid_argument, "torch_config::backend is ",
           static_cast<int>(config.backend), ", which is not a backend");
  if (config.timeout <= std::chrono::milliseconds::zero())
    refuse(context, ec::invalid_argument, "torch_config::timeout is ",
           duration_text(config.timeout), ", but must be positive");
  config.timeout = std::min(config.timeout, longest_limit);
  return config;
}

backend choose(train_context& context, backend wanted) {
  if (wanted != backend::automatic)
    return wanted;
  if (!context.gpus().empty())
    return backend::nccl;
  if (context.local_world_size() != context.world_size())
    return backend::hierarchical;
  return rank_access{context}.facts().segment >= 0 ? backend::local
                                                   : backend::gloo;
}

/// A group whose collectives all go to *member*.
c10::intrusive_ptr<c10d::ProcessGroup>
group_of(const c10::intrusive_ptr<c10d::Store>& store,
         const c10::intrusive_ptr<c10d::Backend>& member,
         const torch_data_plane& plane, c10d::ProcessGroup::BackendType type) {
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, member->getRank(),
                                                       member->getSize());
  if (plane.device.is_cuda()) {
    group->setBoundDeviceId(plane.device);
    group->setBackend(at::kCUDA, type, member);
  }
  if (type != c10d::ProcessGroup::NCCL)
    group->setBackend(at::kCPU, type, member);
  group->setDefaultBackend(type);
  return group;
}

/// Waits until all ranks have reached *store*; an error names the missing ones.
/// The last one to come tells the others, so that no rank waits for each.
void meet(train_context& context, c10d::Store& store,
          std::chrono::milliseconds timeout) {
  auto shown = rank_access{context}.link().activity();
  activity_scope here{shown->at_start};
  shown->came_to_start.store(1);
  const std::vector<std::uint8_t> yes{1};
  auto key = [](int rank) { return concat("here/", rank); };
  store.set(key(context.rank()), yes);
  if (store.add("here", 1) == context.world_size())
    store.set("all here", yes);
  try {
    store.wait({"all here"}, timeout);
  } catch (const train_error& e) {
    if (e.reason().code != ec::timeout)
      throw;
    std::vector<int> missing;
    for (int rank = 0; rank < context.world_size(); ++rank)
      if (!store.check({key(rank)}))
        missing.push_back(rank);
    refuse(context, ec::timeout, rank_list(missing),
           " did not join the group within ", duration_text(timeout));
  }
}

/// Where the other ranks reach this one.
std::string address_of(train_context& context, backend kind) {
  auto& facts = rank_access{context}.facts();
  if (facts.local_world_size == facts.world_size)
    return loopback_address;
  if (facts.host_address.empty())
    refuse(context, ec::unsupported, "backend ", to_string(kind),
           " needs the address of this host, and this run knows none");
  return facts.host_address;
}

/// Two ways to end a group: at once with a reason, and in order.
struct group_ends {
  abort_function abort;
  std::function<void()> close;
};

/// Gives *plane* a group of *member* alone; *close* gets that to end the group
/// in order.
template <class Member, class Close>
group_ends use_alone(torch_data_plane& plane,
                     const c10::intrusive_ptr<c10d::Store>& store,
                     const c10::intrusive_ptr<Member>& member, Close close) {
  plane.group = group_of(store, member, plane, c10d::ProcessGroup::CUSTOM);
  return {[member](const error& reason) { member->abort(reason); },
          [member, close] { close(*member); }};
}

/// The segment that this rank shares with the others of its host.
shared_segment attach_segment(train_context& context) {
  auto& facts = rank_access{context}.facts();
  auto segment = value_or_throw(
    shared_segment::attach(facts.segment, {facts.run_id, facts.attempt}));
  if (segment.ranks() != facts.local_world_size)
    refuse(context, ec::protocol, "the shared segment is for ",
           counted(segment.ranks(), "rank"), ", this host has ",
           facts.local_world_size);
  return segment;
}

group_ends join_local(train_context& context, const torch_config& config,
                      torch_data_plane& plane,
                      const c10::intrusive_ptr<c10d::Store>& store) {
  if (rank_access{context}.facts().segment < 0
      || context.local_world_size() != context.world_size())
    refuse(context, ec::unsupported,
           "backend local needs all ranks on one host");
  if (plane.device.is_cuda())
    refuse(
      context, ec::unsupported,
      "backend local carries CPU tensors only, and this rank has GPUs: use "
      "nccl or gloo");
  auto member = c10::make_intrusive<local_group>(
    attach_segment(context), context.rank(), config.timeout,
    rank_access{context}.link().activity());
  return use_alone(plane, store, member, [](auto& x) { x.close(); });
}

/// The segment of this host's ranks; one that is alone makes its own.
shared_segment segment_of_host(train_context& context) {
  auto& facts = rank_access{context}.facts();
  if (facts.segment < 0 && facts.local_world_size == 1)
    return value_or_throw(shared_segment::create(1));
  if (facts.segment < 0)
    refuse(context, ec::unsupported,
           "backend hierarchical needs shared memory between the ranks of a "
           "host");
  return attach_segment(context);
}

/// How this rank's connections to other hosts are secured, if it leads its own.
std::shared_ptr<link_security> security_of(train_context& context,
                                           const torch_config& config) {
  auto& facts = rank_access{context}.facts();
  if (!config.encrypt_gradients || facts.local_rank != 0
      || facts.local_world_size == facts.world_size)
    return plain_links();
  auto credentials = rank_access{context}.link().credentials();
  if (!credentials)
    refuse(context, ec::unsupported,
           "torch_config::encrypt_gradients needs certificates, and this run "
           "has none");
  return value_or_throw(encrypted_links(*credentials, facts.run_id));
}

/// An abort while a group is being made. Any thread.
class early_abort {
public:
  void come(const error& reason) {
    std::lock_guard guard{mutex_};
    reason_ = reason;
    came_.notify();
  }

  error reason() const {
    std::lock_guard guard{mutex_};
    return reason_;
  }

  /// Readable once it has come.
  const wake_event& came() const noexcept { return came_; }

private:
  mutable std::mutex mutex_;
  error reason_;
  wake_event came_;
};

group_ends join_hierarchical(train_context& context, const torch_config& config,
                             torch_data_plane& plane,
                             const c10::intrusive_ptr<c10d::Store>& store) {
  if (plane.device.is_cuda())
    refuse(context, ec::unsupported,
           "backend hierarchical carries CPU tensors only, and this rank has "
           "GPUs: use nccl or gloo");
  auto& facts = rank_access{context}.facts();
  auto address = address_of(context, backend::hierarchical);
  auto segment = segment_of_host(context);
  // It ends the wait for other hosts.
  auto aborted = std::make_shared<early_abort>();
  if (!aborted->came())
    refuse(context, ec::spawn, "the start of the group needs a descriptor");
  rank_access{context}.link().on_abort(
    [aborted](const error& reason) { aborted->come(reason); });
  join_ring_args how;
  how.security = security_of(context, config);
  how.stop = aborted->came().fd();
  how.limit = std::min<std::chrono::milliseconds>(config.timeout, start_limit);
  how.lost_after = std::chrono::milliseconds{facts.lost_after_ms};
  auto meeting = value_or_throw(
    host_meeting::begin(*store,
                        {facts.rank, facts.local_rank, facts.local_world_size,
                         facts.world_size, facts.host, address},
                        how));
  meet(context, *store, config.timeout);
  auto shown = rank_access{context}.link().activity();
  auto places = [&] {
    activity_scope here{shown->at_start};
    return meeting.join(*store, how);
  }();
  if (!places) {
    if (auto reason = aborted->reason())
      throw train_error{std::move(reason)};
    refuse(context, places.error().code, places.error().message);
  }
  auto member = c10::make_intrusive<hierarchical_group>(
    std::move(segment), facts.local_rank, std::move(*places), config.timeout,
    shown);
  return use_alone(plane, store, member, [](auto& x) { x.close(); });
}

group_ends join_gloo(train_context& context, const torch_config& config,
                     torch_data_plane& plane,
                     const c10::intrusive_ptr<c10d::Store>& store) {
  if (group_reaper::pending() >= group_reaper::limit)
    refuse(context, ec::conflict, group_reaper::limit,
           " groups of earlier attempts still wait for their peers");
  auto address = address_of(context, backend::gloo);
  if (has_gloo())
    meet(context, *store, config.timeout);
  auto member = c10::make_intrusive<abortable_group>(
    make_gloo_group(store, context.rank(), context.world_size(), address,
                    config.timeout),
    rank_access{context}.link().activity());
  return use_alone(plane, store, member, [](abortable_group& x) {
    x.shutdown();
    group_reaper::drain(close_limit);
  });
}

group_ends join_nccl(train_context& context, const torch_config& config,
                     torch_data_plane& plane,
                     const c10::intrusive_ptr<c10d::Store>& store) {
  if (!plane.device.is_cuda())
    refuse(context, ec::unsupported,
           "backend nccl needs a GPU for every rank, and this rank has none "
           "(scaling_config gives them)");
  // NCCL itself would wait for missing ranks without naming them.
  meet(context, *store, config.timeout);
  auto member = start_group(
    context, std::min<std::chrono::milliseconds>(config.timeout, start_limit),
    [store, config, device = plane.device, rank = context.rank(),
     size = context.world_size()] {
      c10::impl::VirtualGuardImpl{device.type()}.setDevice(device);
      return make_nccl_group(store, rank, size, device, config.timeout);
    });
  plane.group = group_of(store, member, plane, c10d::ProcessGroup::NCCL);
  c10::intrusive_ptr<abortable_group> on_cpu;
  if (has_gloo()) { // For tensors on the CPU, which NCCL does not carry.
    on_cpu = c10::make_intrusive<abortable_group>(
      make_gloo_group(c10::make_intrusive<c10d::PrefixStore>("cpu", store),
                      context.rank(), context.world_size(),
                      address_of(context, backend::nccl), config.timeout),
      rank_access{context}.link().activity());
    plane.group->setBackend(at::kCPU, c10d::ProcessGroup::CUSTOM, on_cpu);
  }
  auto check = refuse_reports_after_abort(context, member, plane.device);
  return {[member, on_cpu](const error& reason) {
            abort_nccl_group(member);
            // Last: callbacks may close the group, which waits for the GPU.
            if (on_cpu)
              on_cpu->abort(reason);
          },
          [member, on_cpu, device = plane.device, check]() mutable {
            if (on_cpu)
              on_cpu->shutdown();
            close_nccl_group(std::move(member), device);
          }};
}

group_ends join(train_context& context, const torch_config& config,
                torch_data_plane& plane) {
  auto kind = choose(context, config.backend);
  c10::intrusive_ptr<c10d::Store> base = c10::make_intrusive<rendezvous_store>(
    rank_access{context}.link().store(), config.timeout);
  auto store = c10::make_intrusive<c10d::PrefixStore>(
    concat("attempt/", context.attempt(), "/", to_string(kind)),
    std::move(base));
  switch (kind) {
    case backend::local:
      return join_local(context, config, plane, store);
    case backend::nccl:
      return join_nccl(context, config, plane, store);
    case backend::hierarchical:
      return join_hierarchical(context, config, plane, store);
    default:
      return join_gloo(context, config, plane, store);
  }
}

} // namespace

std::shared_ptr<torch_data_plane> make_group(train_context& context,
                                             const torch_config& config) {
  auto plane = std::make_unique<torch_data_plane>();
  if (!context.gpus().empty()) {
    plane->device = at::Device{
      at::kCUDA, static_cast<c10::DeviceIndex>(context.gpus().front())};
    // For `torch::kCUDA` without an index, which otherwise means GPU 0.
    c10::impl::VirtualGuardImpl{at::kCUDA}.setDevice(plane->device);
  }
  if (context.world_size() == 1)
    return plane;
  auto ends = join(context, checked(context, config), *plane);
  // A data plane may outlive the context and its link.
  auto link = rank_access{context}.link().weak_from_this();
  rank_access{context}.link().on_abort(std::move(ends.abort));
  return {plane.release(),
          [owner = owner_process{}, link,
           close = std::move(ends.close)](torch_data_plane* x) {
            // A process that the loop forked would leave for the rank, and wait
            // for threads that it does not have.
            if (!owner.is_here())
              return;
            if (auto alive = link.lock()) {
              alive->on_abort({});
              // Set before other ranks can see the group close.
              alive->activity()->left_group.store(1);
            }
            delete x; // Before the group closes: it holds one, too.
            close();
          }};
}

} // namespace troupe::internal

namespace troupe {

std::string_view to_string(backend x) noexcept {
  switch (x) {
    case backend::automatic:
      return "automatic";
    case backend::local:
      return "local";
    case backend::gloo:
      return "gloo";
    case backend::nccl:
      return "nccl";
    case backend::hierarchical:
      return "hierarchical";
  }
  return "unknown";
}

} // namespace troupe
