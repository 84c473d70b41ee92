#include "troupe/trainers/torch/groups/c10d_groups.hpp"

#include <future>

#include <pthread.h>
#include <signal.h>

#include "troupe/runtime/hosts/network_addresses.hpp"
#include "troupe/runtime/process/process_vitals.hpp"
#include "troupe/trainers/train_context.hpp"

#ifdef TROUPE_HAS_GLOO
#include <c10/util/StringUtil.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#endif

namespace troupe::internal {

#ifdef TROUPE_HAS_GLOO

namespace {

/// Longest wait of the ranks for each other's connections. All have reached the
/// store before, and a rank that connects cannot be woken.
constexpr auto connect_timeout = std::chrono::minutes{2};

/// Calls *f* on a thread without SIGPIPE. The threads that it starts have none
/// either: Gloo writes to sockets of peers that may have ended, and ranks that
/// are threads share the signals of the user's program, which would end. They
/// also get its name, unless their LibTorch gives them one: their CPU time does
/// not count as activity of the rank.
template <class F>
auto on_gloos_thread(F f) {
  auto result = std::async(std::launch::async, [&f] {
    ::pthread_setname_np(::pthread_self(), polling_thread);
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
    return f();
  });
  return result.get();
}

} // namespace

bool has_gloo() noexcept {
  return true;
}

c10::intrusive_ptr<c10d::Backend>
make_gloo_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                int size, const std::string& address,
                std::chrono::milliseconds timeout) {
  using gloo = c10d::ProcessGroupGloo;
  // With an address of another host, Gloo only says that it cannot connect.
  if (auto here = find_own_address(address); !here) {
    auto& [code, message] = here.error();
    throw train_error{
      {code, c10::str("rank ", rank, ": ", message,
                      code == ec::invalid_config ? other_network_hint : "")}};
  }
  auto make = [&] {
    auto options = gloo::Options::create(
      std::min<std::chrono::milliseconds>(timeout, connect_timeout));
    // Never a name: /etc/hosts may resolve that of this host to 127.0.1.1.
    options->devices.push_back(gloo::createDeviceForHostname(address));
    options->threads = 2;
    c10::intrusive_ptr<c10d::Backend> group =
      c10::make_intrusive<gloo>(store, rank, size, options);
    group->setTimeout(timeout);
    return group;
  };
  return make_member(rank, "Gloo could not connect",
                     [&] { return on_gloos_thread(make); });
}

#else

bool has_gloo() noexcept {
  return false;
}

c10::intrusive_ptr<c10d::Backend>
make_gloo_group(const c10::intrusive_ptr<c10d::Store>&, int rank, int,
                const std::string&, std::chrono::milliseconds) {
  throw train_error{
    {ec::unsupported,
     c10::str("rank ", rank,
              ": this build of Troupe has no Gloo: its headers (Debian: "
              "libgloo-dev) were missing, or TROUPE_WITH_GLOO was off")}};
}

#endif

} // namespace troupe::internal
