#include "troupe/runtime/hosts/host_roster.hpp"

#include <sched.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>
#include <utility>

#include "troupe/runtime/hosts/host_list.hpp"
#include "troupe/runtime/process/cpu_plan.hpp"
#include "troupe/runtime/process/function_address.hpp"
#include "troupe/runtime/process/processes.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

std::vector<host_states::host> unnamed_hosts(std::size_t count) {
  std::vector<host_states::host> result;
  for (std::size_t i = 0; i < count; ++i)
    result.push_back({concat("host ", i), false});
  return result;
}

std::vector<host_states::host>
launched_hosts(const std::vector<std::string>& names) {
  auto result = unnamed_hosts(1);
  for (auto& name : names)
    result.push_back({name, true});
  return result;
}

std::vector<host_states::host> with_slots(std::vector<host_states::host> hosts,
                                          const std::vector<int>& slots) {
  for (std::size_t i = 0; i < slots.size(); ++i)
    hosts[i].slots = slots[i];
  return hosts;
}

/// Why a program like *x* cannot have ranks of the run of *own*.
error unfitness(const agent_facts& x, const agent_facts& own) {
  auto or_none = [](const std::string& id) { return id.empty() ? "none" : id; };
  if (x.version != own.version)
    return {ec::invalid_config,
            concat("it runs Troupe ", x.version, ", the driver ", own.version)};
  if (x.build_id != own.build_id)
    return {ec::invalid_config,
            concat("its program has build id ", or_none(x.build_id),
                   ", the driver's has ", or_none(own.build_id),
                   ": start every host from the same build")};
  return {};
}

} // namespace

std::int64_t clock_in_ms(std::chrono::system_clock::time_point x) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
           x.time_since_epoch())
    .count();
}

std::string clock_warning(const agent_facts& x,
                          std::chrono::system_clock::time_point now) {
  // A hello may wait as long for a busy machine.
  constexpr std::int64_t tolerance_ms = 60'000;
  auto ahead = x.clock_ms - clock_in_ms(now);
  if (std::abs(ahead) <= tolerance_ms)
    return {};
  return concat("the clock of host ", x.host, " is ", std::abs(ahead) / 1000,
                " s ", ahead > 0 ? "ahead of" : "behind",
                " the driver's: times in its logs and of its files differ");
}

agent_facts own_agent_facts() {
  agent_facts result;
  std::random_device random;
  result.incarnation = std::uint64_t{random()} << 32 | random();
  result.host = own_host_name();
  result.cores = static_cast<int>(available_cores().size());
  result.gpus = static_cast<int>(local_resources().gpus);
  struct sysinfo memory {};
  if (::sysinfo(&memory) == 0)
    result.memory = std::uint64_t{memory.totalram} * memory.mem_unit;
  struct statvfs shared {};
  if (::statvfs("/dev/shm", &shared) == 0)
    result.shared_memory = std::uint64_t{shared.f_blocks} * shared.f_frsize;
  result.build_id = program_build_id();
  result.version = TROUPE_VERSION;
  result.clock_ms = clock_in_ms(std::chrono::system_clock::now());
  result.pid = ::getpid();
  return result;
}

host_roster::host_roster(std::vector<host_states::host> hosts, agent_facts own,
                         host_limits limits, std::string addresses,
                         random_function random, bool launches,
                         const std::vector<int>& slots)
  : own_(std::move(own)), limits_(limits), launches_(launches),
    addresses_(std::move(addresses)),
    states_(with_slots(hosts, slots), limits, addresses_, std::move(random)) {
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    auto& host = hosts_.emplace_back();
    host.name = hosts[i].name;
    host.is_launched = hosts[i].is_launched;
    host.planned = i < slots.size() ? slots[i] : 1;
    host.room.ranks = host.planned;
  }
  assign(0, own_, time_point{});
  hosts_[0].is_ready = true;
  (void) states_.on_hello(0, own_.incarnation, time_point{});
}

host_roster::host_roster(std::size_t hosts, agent_facts own, host_limits limits,
                         std::string addresses, const std::vector<int>& slots)
  : host_roster(
    unnamed_hosts(hosts), std::move(own), limits, std::move(addresses),
    [] { return 0.0; }, false, slots) {}

host_roster::host_roster(const std::vector<std::string>& launched,
                         agent_facts own, host_limits limits,
                         std::string addresses, random_function random,
                         const std::vector<int>& slots)
  : host_roster(launched_hosts(launched), std::move(own), limits,
                std::move(addresses), std::move(random), true, slots) {}

void host_roster::assign(std::size_t host, const agent_facts& x,
                         time_point now) {
  auto& mine = hosts_[host];
  // A host that is launched has the name that it was given with.
  if (!mine.is_launched && !x.host.empty())
    mine.name = x.host;
  mine.is_named = true;
  mine.incarnation = x.incarnation;
  mine.is_ready = false;
  mine.is_guest = launches_ && host > 0 && x.launch == 0;
  mine.admitted = now;
  mine.room = room_on(x, mine.planned);
  states_.rename(host, mine.name);
  states_.set_slots(host, mine.room.ranks);
}

std::optional<std::size_t>
host_roster::host_with(std::uint64_t incarnation) const {
  for (std::size_t i = 1; i < hosts_.size(); ++i)
    if (hosts_[i].incarnation == incarnation)
      return i;
  return std::nullopt;
}

namespace {

/// How well a host suits an agent.
enum class fit { none, other, unused, same_host };

} // namespace

// The first one of those that suit it equally well; of the same host the last.
template <class Function>
std::optional<std::size_t> host_roster::free_host(Function fit_of) const {
  std::optional<std::size_t> result;
  auto best = fit::other;
  for (auto i = hosts_.size(); i-- > 1;) {
    if (hosts_[i].incarnation)
      continue;
    auto found = fit_of(hosts_[i]);
    if (found < best)
      continue;
    best = found;
    result = i;
    if (best == fit::same_host)
      break;
  }
  return result;
}

bool host_roster::has_room() const {
  auto slots = 0;
  for (auto& host : hosts_)
    if (host.incarnation)
      slots += host.room.ranks;
  return slots < limits_.max_ranks;
}

expected<std::size_t> host_roster::host_for_guest(const agent_facts& x) const {
  if (limits_.max_ranks == 0)
    return failure(ec::invalid_config,
                   "the driver launches the agents of its hosts itself, and "
                   "takes no others: the number of its ranks is fixed");
  if (auto own = host_with(x.incarnation))
    return *own;
  if (!has_room())
    return tl::unexpected{all_taken()};
  auto free = free_host([&x](const host_record& host) {
    if (may_be_same_host(host.name, x.host))
      return fit::same_host;
    return host.is_launched ? fit::none : fit::other;
  });
  return free.value_or(hosts_.size());
}

int host_roster::slots_of_guest() const {
  return std::ranges::max(hosts_, {}, &host_record::planned).planned;
}

void host_roster::add_guest() {
  auto slots = slots_of_guest();
  auto& added = hosts_.emplace_back();
  added.name = concat("host ", hosts_.size() - 1);
  added.planned = slots;
  states_.add_guest(added.name, slots);
}

host_room host_roster::room_on(const agent_facts& x, int planned) const {
  auto is_fixed = limits_.min_ranks == 0;
  return limits_.claim.room_on(
    concat("host ", x.host),
    {static_cast<double>(x.cores), static_cast<double>(x.gpus)}, planned,
    is_fixed ? planned : limits_.per_host);
}

std::string host_roster::shortage(std::size_t host) const {
  auto& mine = hosts_[host];
  if (mine.room.shortage.empty())
    return {};
  return concat("host ", mine.name, " has room for ", mine.room.ranks, " of ",
                mine.planned, " ranks: ", mine.room.shortage);
}

error host_roster::all_taken() const {
  return {ec::conflict, concat("all hosts of the run have their agents: ",
                               joined(hosts_, ", ", &host_record::name))};
}

host_decisions host_roster::noted(host_decisions x) {
  for (auto& decision : x)
    if (auto* launch = std::get_if<launch_agent>(&decision)) {
      hosts_[launch->host].launch = launch->launch;
    } else if (auto* lost = std::get_if<host_lost>(&decision)) {
      hosts_[lost->host].incarnation.reset();
      hosts_[lost->host].is_ready = false;
    }
  return x;
}

std::optional<std::size_t> host_roster::host_of(std::uint64_t launch) const {
  for (std::size_t i = 1; i < hosts_.size() && launch != 0; ++i)
    if (hosts_[i].launch == launch)
      return i;
  return std::nullopt;
}

expected<std::size_t>
host_roster::host_for_launched(const agent_facts& x) const {
  auto host = host_of(x.launch);
  if (!host)
    return failure(ec::stopped, "another launch has taken its place");
  auto& mine = hosts_[*host];
  if (mine.incarnation && mine.incarnation != x.incarnation)
    return failure(ec::conflict, concat(mine.name, " has its agent"));
  return *host;
}

expected<std::size_t> host_roster::host_for(const agent_facts& x) const {
  if (launches_)
    return x.launch == 0 ? host_for_guest(x) : host_for_launched(x);
  if (auto own = host_with(x.incarnation))
    return *own;
  auto fit_of = [&x](const host_record& host) {
    if (!host.is_named)
      return fit::unused;
    return host.name == x.host ? fit::same_host : fit::other;
  };
  auto free = free_host([&](const host_record& host) {
    return room_on(x, host.planned).shortage.empty() ? fit_of(host) : fit::none;
  });
  if (!free) // It has too little for any of them, or for all its ranks.
    free = free_host(fit_of);
  if (!free)
    return tl::unexpected{all_taken()};
  return *free;
}

expected<std::size_t> host_roster::admit(const agent_facts& x, time_point now,
                                         host_decisions& decisions) {
  auto host = host_for(x);
  auto problem = unfitness(x, own_);
  if (host && !problem) {
    auto room = room_on(x, *host < hosts_.size() ? hosts_[*host].planned
                                                 : slots_of_guest());
    if (room.ranks == 0 && !room.shortage.empty())
      problem = {ec::invalid_config, std::move(room.shortage)};
  }
  // Another agent may be launched on the host of an unfit guest.
  if (problem && host && (!launches_ || x.launch != 0))
    decisions = noted(states_.on_refused(
      *host, concat("the agent of ", x.host, " was refused: ", problem.message),
      now));
  if (problem)
    return tl::unexpected{std::move(problem)};
  if (host && *host == hosts_.size())
    add_guest();
  if (host)
    assign(*host, x, now);
  return host;
}

host_decisions host_roster::launched(std::uint64_t launch, time_point now) {
  auto host = host_of(launch);
  return host ? noted(states_.on_launched(*host, launch, now))
              : host_decisions{};
}

host_decisions host_roster::launcher_ended(std::uint64_t launch,
                                           std::string words, bool may_help,
                                           time_point now) {
  auto host = host_of(launch);
  if (!host)
    return {};
  return noted(
    states_.on_launcher_ended(*host, launch, std::move(words), may_help, now));
}

std::optional<host_decisions> host_roster::checked(std::size_t host,
                                                   std::uint64_t incarnation,
                                                   const error& problem,
                                                   time_point now) {
  if (host >= hosts_.size() || hosts_[host].incarnation != incarnation)
    return std::nullopt;
  if (!problem) {
    hosts_[host].is_ready = true;
    return noted(hosts_[host].is_guest
                   ? states_.on_guest(host, incarnation, now)
                   : states_.on_hello(host, incarnation, now));
  }
  auto& mine = hosts_[host];
  mine.incarnation.reset();
  // What is wrong with a guest need not be wrong with an agent of our own.
  if (problem.code == ec::conflict || (mine.is_guest && mine.is_launched))
    return host_decisions{};
  return noted(states_.on_refused(host, problem.message, now));
}

std::optional<host_decisions> host_roster::ticked(std::size_t host,
                                                  std::uint64_t incarnation,
                                                  time_point now) {
  if (host >= hosts_.size() || hosts_[host].incarnation != incarnation)
    return std::nullopt;
  if (!hosts_[host].is_ready)
    return host_decisions{};
  return noted(states_.on_tick(host, incarnation, now));
}

host_decisions host_roster::gone(std::size_t host, std::uint64_t incarnation,
                                 std::string cause, time_point now) {
  auto& mine = hosts_[host];
  if (mine.incarnation != incarnation)
    return {};
  mine.incarnation.reset();
  if (!std::exchange(mine.is_ready, false))
    return {};
  return noted(states_.on_gone(host, incarnation, std::move(cause), now));
}

host_decisions host_roster::left(host_decisions x) {
  for (auto& decision : x)
    if (auto* fence = std::get_if<fence_agent>(&decision);
        fence && has(fence->host, fence->incarnation)) {
      hosts_[fence->host].incarnation.reset();
      hosts_[fence->host].is_ready = false;
    }
  return noted(std::move(x));
}

host_decisions host_roster::draining(std::size_t host,
                                     std::uint64_t incarnation,
                                     host_limits::duration grace,
                                     time_point now) {
  return left(states_.on_draining(host, incarnation, grace, now));
}

std::string host_roster::waiting_text() const {
  std::string names;
  for (auto& host : hosts_)
    if (!host.is_ready)
      append_item(names, host.name);
  return concat("waiting for the agents of ", names, " at ", addresses_);
}

host_decisions host_roster::gather(time_point now, bool at_once) {
  auto result = check(now); // Nothing waits yet, but launches may be due.
  for (auto& x : noted(states_.gather(now, states_.join_limit(), at_once)))
    result.push_back(std::move(x));
  return result;
}

host_decisions host_roster::check(time_point now) {
  // The driver's own host is there as long as someone calls this.
  (void) states_.on_tick(0, own_.incarnation, now);
  host_decisions result;
  end_long_checks(now, result);
  for (auto& x : noted(states_.check(now)))
    result.push_back(std::move(x));
  return result;
}

// An agent that has a host but no end of its checks sends no ticks yet: its
// host was frozen, or its storage hangs.
void host_roster::end_long_checks(time_point now, host_decisions& out) {
  for (std::size_t i = 1; i < hosts_.size(); ++i) {
    auto& host = hosts_[i];
    if (!host.incarnation || host.is_ready
        || now - host.admitted < limits_.join)
      continue;
    out.emplace_back(fence_agent{i, *host.incarnation});
    host.incarnation.reset();
  }
}

} // namespace troupe::internal
