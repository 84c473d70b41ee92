#include "troupe/trainers/torch/groups/make_group.hpp"

#include <thread>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "troupe/trainers/rank_link.hpp"
#include "troupe/trainers/torch/groups/elastic_group.hpp"
#include "troupe/trainers/torch/groups/gloo_group.hpp"
#include "troupe/trainers/torch/groups/group_reaper.hpp"
#include "troupe/trainers/torch/groups/local_group.hpp"
#include "troupe/trainers/torch/groups/nccl_group.hpp"
#include "troupe/trainers/torch/groups/rendezvous_store.hpp"

namespace troupe {

namespace {

using abort_function = std::function<void(const error&)>;

/// How long the end of a loop waits for connections to close; after that they
/// close on their own.
constexpr auto close_limit = std::chrono::seconds{1};

[[noreturn]] void refuse(const train_context& context, ec code,
                         const std::string& what) {
  throw train_error{
    {code, "rank " + std::to_string(context.rank()) + ": " + what}};
}

backend choose(const train_context& context, backend wanted) {
  if (wanted != backend::automatic)
    return wanted;
  if (!context.facts().gpus.empty())
    return backend::nccl;
  return context.facts().segment >= 0 ? backend::local : backend::gloo;
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

/// Waits until all ranks are at *store*; an error names those that are not.
void meet(train_context& context, c10d::Store& store,
          std::chrono::milliseconds timeout) {
  auto key = [](int rank) { return "here/" + std::to_string(rank); };
  store.set(key(context.rank()), std::vector<std::uint8_t>{1});
  std::vector<std::string> keys;
  for (int rank = 0; rank < context.world_size(); ++rank)
    keys.push_back(key(rank));
  try {
    store.wait(keys, timeout);
  } catch (const train_error& e) {
    if (e.reason().code != ec::timeout)
      throw;
    std::string missing;
    for (int rank = 0; rank < context.world_size(); ++rank)
      if (!store.check({key(rank)}))
        missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
    refuse(context, ec::timeout,
           "rank " + missing + " did not come to the group within "
             + std::to_string(timeout.count()) + " ms");
  }
}

/// The ways of a group to end: at once for a reason, and in good order.
struct group_ends {
  abort_function abort;
  std::function<void()> close;
};

group_ends join_local(train_context& context, const torch_config& config,
                      torch_data_plane& plane,
                      const c10::intrusive_ptr<c10d::Store>& store) {
  if (context.facts().segment < 0)
    refuse(context, ec::unsupported,
           "backend local needs all ranks on one host");
  if (plane.device.is_cuda())
    refuse(
      context, ec::unsupported,
      "backend local carries CPU tensors only, and this rank has GPUs: use "
      "nccl or gloo");
  auto segment = shared_segment::attach(context.facts().segment);
  if (!segment)
    throw train_error{segment.error()};
  if (segment->ranks() != context.world_size())
    refuse(context, ec::protocol,
           "the shared segment is for " + std::to_string(segment->ranks())
             + " ranks, the attempt has "
             + std::to_string(context.world_size()));
  auto member = c10::make_intrusive<local_group>(
    std::move(*segment), context.rank(), config.timeout);
  plane.group = group_of(store, member, plane, c10d::ProcessGroup::CUSTOM);
  return {[member](const error& reason) { member->abort(reason); },
          [member] { member->close(); }};
}

group_ends join_gloo(train_context& context, const torch_config& config,
                     torch_data_plane& plane,
                     const c10::intrusive_ptr<c10d::Store>& store) {
  if (group_reaper::pending() >= group_reaper::limit)
    refuse(context, ec::conflict,
           std::to_string(group_reaper::limit)
             + " groups of earlier attempts still wait for their peers");
  if (has_gloo())
    meet(context, *store, config.timeout);
  auto member = c10::make_intrusive<elastic_group>(make_gloo_group(
    store, context.rank(), context.world_size(),
    context.local_world_size() == context.world_size(), config.timeout));
  plane.group = group_of(store, member, plane, c10d::ProcessGroup::CUSTOM);
  return {[member](const error& reason) { member->abort(reason); },
          [member] {
            member->shutdown();
            group_reaper::drain(close_limit);
          }};
}

group_ends join_nccl(train_context& context, const torch_config& config,
                     torch_data_plane& plane,
                     const c10::intrusive_ptr<c10d::Store>& store) {
  auto member = make_nccl_group(store, context.rank(), context.world_size(),
                                plane.device, config.timeout);
  plane.group = group_of(store, member, plane, c10d::ProcessGroup::NCCL);
  // An abort waits for the GPU; neither the control plane nor the end of the
  // loop may.
  return {[member](const error&) {
            std::thread{[member] { member->abort(); }}.detach();
          },
          [member] { group_reaper::dispose(member); }};
}

group_ends join(train_context& context, const torch_config& config,
                torch_data_plane& plane) {
  auto kind = choose(context, config.backend);
  c10::intrusive_ptr<c10d::Store> base = c10::make_intrusive<rendezvous_store>(
    context.link().store(), config.timeout);
  auto store = c10::make_intrusive<c10d::PrefixStore>(
    "attempt/" + std::to_string(context.attempt()) + "/"
      + std::string{to_string(kind)},
    std::move(base));
  switch (kind) {
    case backend::local:
      return join_local(context, config, plane, store);
    case backend::nccl:
      return join_nccl(context, config, plane, store);
    default:
      return join_gloo(context, config, plane, store);
  }
}

} // namespace

std::shared_ptr<torch_data_plane> make_group(train_context& context,
                                             const torch_config& config) {
  auto plane = std::make_unique<torch_data_plane>();
  if (!context.facts().gpus.empty()) {
    load_cuda(context.rank());
    plane->device = at::Device{
      at::kCUDA, static_cast<c10::DeviceIndex>(context.facts().gpus.front())};
  }
  if (context.world_size() == 1)
    return plane;
  auto ends = join(context, config, *plane);
  auto& link = context.link();
  link.on_abort(std::move(ends.abort));
  return {plane.release(),
          [&link, close = std::move(ends.close)](torch_data_plane* x) {
            link.on_abort({});
            close();
            delete x;
          }};
}

} // namespace troupe
