#include "troupe/runtime/hosts/host_roster.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/hosts/host_list.hpp"
#include "troupe/runtime/process/function_address.hpp"
#include "troupe/runtime/process/loaded_modules.hpp"
#include "troupe/runtime/process/processes.hpp"
#include "troupe/runtime/process/usable_cores.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/unix_time.hpp"

namespace troupe::internal {

namespace {

/// Nothing is launched on the driver's own host, the first one.
std::vector<run_host> hosts_of(const std::vector<planned_host>& planned,
                               bool launches) {
  std::vector<run_host> result;
  for (auto& x : planned) {
    auto is_launched = launches && !result.empty();
    auto& host = result.emplace_back();
    host.name = is_launched ? x.name : concat("host ", result.size() - 1);
    host.is_launched = is_launched;
    host.planned = host.room.ranks = x.slots;
    host.first_rank = x.first_rank;
    host.ranks = x.ranks;
  }
  return result;
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
  // The program's build id does not tell which libraries it has found.
  for (auto& [name, id] : x.libraries)
    if (auto mine = own.libraries.find(name);
        mine != own.libraries.end() && mine->second != id)
      return {ec::invalid_config,
              concat("its ", name, " has build id ", or_none(id),
                     ", the driver's has ", or_none(mine->second),
                     ": start every host with the same libraries")};
  return {};
}

} // namespace

std::string clock_warning(const agent_facts& x,
                          std::chrono::system_clock::time_point now,
                          std::chrono::milliseconds stopped) {
  // A hello may wait as long for a busy machine.
  constexpr std::int64_t tolerance_ms = 60'000;
  auto ahead = x.clock_ms - unix_ms(now);
  if (ahead <= tolerance_ms && -ahead <= tolerance_ms + stopped.count())
    return {};
  return concat("the clock of host ", x.host, " is ",
                duration_text(std::chrono::milliseconds{std::abs(ahead)}),
                ahead > 0 ? " ahead of" : " behind",
                " the driver's: times in its logs and of its files differ");
}

agent_facts own_agent_facts() {
  agent_facts result;
  result.incarnation = random_bits();
  auto process = own_identity();
  result.host = process.host;
  result.boot = process.boot;
  result.cores = own_cores().count;
  result.gpus = static_cast<int>(local_resources().gpus);
  result.build_id = program_build_id();
  result.libraries = library_builds();
  result.version = TROUPE_VERSION;
  result.clock_ms = unix_ms(std::chrono::system_clock::now());
  return result;
}

host_roster::host_roster(std::vector<run_host> hosts, agent_facts own,
                         host_limits limits, std::string addresses,
                         random_function random, bool launches)
  : own_(std::move(own)), limits_(limits), launches_(launches),
    addresses_(std::move(addresses)),
    states_(std::move(hosts), limits, addresses_, std::move(random)) {
  states_.admit(0, own_, false, room_on(own_, at(0).planned), time_point{});
  (void) states_.on_hello(0, own_.incarnation, time_point{});
}

host_roster::host_roster(int ranks)
  : host_roster(std::vector{planned_host{{}, 0, ranks, ranks}}, {}, {}, {}) {
  is_open_ = false;
}

host_roster::host_roster(const std::vector<planned_host>& hosts,
                         agent_facts own, host_limits limits,
                         std::string addresses)
  : host_roster(
    hosts_of(hosts, false), std::move(own), limits, std::move(addresses),
    [] { return 0.0; }, false) {}

host_roster::host_roster(const std::vector<planned_host>& hosts,
                         agent_facts own, host_limits limits,
                         std::string addresses, random_function random)
  : host_roster(hosts_of(hosts, true), std::move(own), limits,
                std::move(addresses), std::move(random), true) {}

std::optional<std::size_t>
host_roster::host_of_agent(std::uint64_t incarnation) const {
  for (std::size_t i = 1; i < all().size(); ++i)
    if (at(i).incarnation == incarnation)
      return i;
  return std::nullopt;
}

namespace {

/// Whether the agents of *x* and *host* run on one machine. Containers there
/// differ in their names.
bool is_on_host_of(const agent_facts& x, const run_host& host) {
  return !x.boot.empty() && host.boot == x.boot && host.own_name == x.host;
}

/// How well a host suits an agent.
enum class fit { none, spare, other, unused, same_host };

} // namespace

// The first one of those that suit it equally well; of the same host the last.
template <class Function>
std::optional<std::size_t> host_roster::free_host(Function fit_of) const {
  std::optional<std::size_t> result;
  auto best = fit::spare;
  for (auto i = all().size(); i-- > 1;) {
    if (at(i).incarnation)
      continue;
    auto found = fit_of(at(i));
    if (found < best)
      continue;
    best = found;
    result = i;
    if (best == fit::same_host)
      break;
  }
  return result;
}

// One that is left out is a spare once it may have ranks again.
bool host_roster::has_room() const {
  auto slots = 0;
  for (auto& host : all())
    if (host.incarnation && !host.left_out_until)
      slots += host.room.ranks;
  return slots < limits_.max_ranks;
}

expected<std::size_t> host_roster::host_for_guest(const agent_facts& x) const {
  if (limits_.max_ranks == 0)
    return failure(ec::invalid_config,
                   "the driver launches the agents of its hosts itself, and "
                   "takes no others: the number of its ranks is fixed");
  if (auto own = host_of_agent(x.incarnation))
    return *own;
  // Its ranks would fail as those that the host was left out for.
  for (auto& host : all())
    if (host.left_out_until && host.incarnation && is_on_host_of(x, host))
      return failure(ec::conflict,
                     concat("this machine has the agent of ", host.name,
                            ", which gets no ranks for a while: end it first"));
  if (!has_room())
    return tl::unexpected{all_taken()};
  auto free = free_host([&x](const run_host& host) {
    if (may_be_same_host(host.name, x.host))
      return fit::same_host;
    return host.is_launched ? fit::none : fit::other;
  });
  return free.value_or(all().size());
}

int host_roster::slots_of_guest() const {
  return std::ranges::max(all(), {}, &run_host::planned).planned;
}

host_room host_roster::room_on(const agent_facts& x, int planned) const {
  auto is_fixed = limits_.min_ranks == 0;
  auto gpus = std::min(x.gpus, limits_.shown_gpus);
  return limits_.claim.room_on(
    concat("host ", x.host),
    {static_cast<double>(x.cores), static_cast<double>(gpus)}, planned,
    is_fixed ? planned : limits_.per_host);
}

std::string host_roster::shortage(std::size_t host) const {
  auto& mine = at(host);
  if (mine.room.shortage.empty())
    return {};
  return concat("host ", mine.name, " has room for ", mine.room.ranks, " of ",
                counted(mine.planned, "rank"), ": ", mine.room.shortage);
}

std::string host_roster::sharing(std::size_t host) const {
  auto& mine = at(host);
  // A host without ranks uses nothing there.
  if (mine.planned == 0 || mine.boot.empty())
    return {};
  for (std::size_t i = 0; i < all().size(); ++i)
    if (auto& x = at(i); i != host && x.incarnation && x.planned > 0
                         && x.boot == mine.boot && x.own_name == mine.own_name)
      return concat("the agents of ", x.name, " (host ", i, ") and ", mine.name,
                    " (host ", host,
                    ") run on one machine: both use all its cores and GPUs; "
                    "start one on each machine");
  return {};
}

error host_roster::all_taken() const {
  return {ec::conflict, concat("all hosts of the run have their agents: ",
                               joined(all(), ", ", &run_host::name))};
}

std::optional<std::size_t> host_roster::host_of(std::uint64_t launch) const {
  for (std::size_t i = 1; i < all().size() && launch != 0; ++i)
    if (at(i).launch == launch)
      return i;
  return std::nullopt;
}

expected<std::size_t>
host_roster::host_for_launched(const agent_facts& x) const {
  auto host = host_of(x.launch);
  if (!host)
    return failure(ec::stopped, "another launch has taken its place");
  auto& mine = at(*host);
  if (mine.incarnation && mine.incarnation != x.incarnation)
    return failure(ec::conflict, concat(mine.name, " has its agent"));
  return *host;
}

// As a spare, it would not ask again once its host is free, nor show its GPUs
// once they are there: an attempt would wait for that host in vain.
expected<std::size_t> host_roster::spare_for(const agent_facts& x,
                                             std::size_t spare,
                                             time_point now) {
  for (std::size_t i = 1; i < all().size(); ++i) {
    auto& own = at(i);
    if (own.planned == 0 || !own.is_named || own.own_name != x.host)
      continue;
    if (!own.incarnation && own.was_here) // It lacks room, which may be late.
      return i;
    if (own.incarnation
        && states_.may_be_free_soon(i, x.incarnation, loss_limit(), now))
      return failure(ec::conflict, concat(own.name, " has its agent"));
  }
  return spare;
}

expected<std::size_t> host_roster::host_for(const agent_facts& x,
                                            time_point now) {
  if (launches_)
    return x.launch == 0 ? host_for_guest(x) : host_for_launched(x);
  if (auto own = host_of_agent(x.incarnation))
    return *own;
  auto fit_of = [&x](const run_host& host) {
    if (host.planned == 0) // No attempt needs it.
      return fit::spare;
    if (!host.is_named)
      return fit::unused;
    return host.name == x.host ? fit::same_host : fit::other;
  };
  auto free = free_host([&](const run_host& host) {
    return room_on(x, host.planned).shortage.empty() ? fit_of(host) : fit::none;
  });
  if (!free) // It has too little for any of them, or for all its ranks.
    free = free_host(fit_of);
  if (!free)
    return tl::unexpected{all_taken()};
  return at(*free).planned > 0 ? *free : spare_for(x, *free, now);
}

expected<std::size_t> host_roster::admit(const agent_facts& x, time_point now,
                                         host_decisions& decisions) {
  auto host = host_for(x, now);
  auto problem = unfitness(x, own_);
  host_room room;
  if (host && !problem) {
    room =
      room_on(x, *host < all().size() ? at(*host).planned : slots_of_guest());
    auto lacks_room = room.ranks == 0 && !room.shortage.empty();
    // A host that has just booted may not show its GPUs yet, or only some.
    if (was_here(*host, x)
        && (lacks_room
            || states_.may_have_more(*host, x.incarnation, room, now))) {
      states_.on_problem(*host, room.shortage);
      return failure(ec::conflict, std::move(room.shortage));
    }
    if (lacks_room)
      problem = {ec::invalid_config, room.shortage};
  }
  // Another agent may be launched on the host of an unfit guest.
  if (problem && host && (!launches_ || x.launch != 0))
    decisions = states_.on_refused(
      *host, concat("the agent of ", x.host, " was refused: ", problem.message),
      now);
  if (problem)
    return tl::unexpected{std::move(problem)};
  if (host && *host == all().size())
    states_.add_guest(slots_of_guest());
  if (host)
    states_.admit(*host, x, launches_ && x.launch == 0, std::move(room), now);
  return host;
}

host_decisions host_roster::launched(std::uint64_t launch, time_point now) {
  auto host = host_of(launch);
  return host ? states_.on_launched(*host, launch, now) : host_decisions{};
}

void host_roster::launcher_said(std::uint64_t launch, std::string said) {
  if (auto host = host_of(launch))
    states_.on_launcher_said(*host, launch, std::move(said));
}

host_decisions host_roster::launcher_ended(std::uint64_t launch,
                                           std::string reason, bool may_help,
                                           time_point now) {
  auto host = host_of(launch);
  return host ? states_.on_launcher_ended(*host, launch, std::move(reason),
                                          may_help, now)
              : host_decisions{};
}

std::optional<host_decisions> host_roster::checked(std::size_t host,
                                                   std::uint64_t incarnation,
                                                   const error& problem,
                                                   time_point now,
                                                   const std::string& address) {
  if (!has_host(host, incarnation))
    return std::nullopt;
  if (!problem) {
    if (!address.empty())
      states_.set_address(host, address);
    return states_.on_hello(host, incarnation, now);
  }
  auto& mine = at(host);
  if (mine.is_here()) // It has checked it before, and serves no more.
    return states_.on_gone(host, incarnation, problem.message, now);
  states_.release(host);
  // A host that has just booted may not have mounted the storage.
  auto may_pass = problem.code == ec::storage || mine.was_here;
  if (may_pass)
    states_.on_problem(host, problem.message);
  // A guest's problem may not affect an agent that this driver launches.
  if (mine.is_guest && mine.is_launched)
    return host_decisions{};
  // Its launcher ends with the agent, and another one may help.
  if (may_pass || asks_again(problem))
    return host_decisions{};
  return states_.on_refused(host, problem.message, now);
}

std::optional<host_decisions> host_roster::ticked(std::size_t host,
                                                  std::uint64_t incarnation,
                                                  time_point now) {
  if (!has_host(host, incarnation))
    return std::nullopt;
  return states_.on_tick(host, incarnation, now);
}

host_decisions host_roster::gone(std::size_t host, std::uint64_t incarnation,
                                 std::string cause, time_point now) {
  return states_.on_gone(host, incarnation, std::move(cause), now);
}

std::string host_roster::waiting_text() const {
  auto is_awaited = [](host_state x) {
    return x != host_state::ready && x != host_state::serving
           && x != host_state::given_up;
  };
  std::string names;
  for (auto& host : all())
    if (is_awaited(host.state))
      append_item(names, host.name);
  return concat("waiting for the agents of ", names, " at ", addresses_);
}

host_decisions host_roster::gather(time_point now, bool at_once) {
  auto result = check(now); // Nothing waits yet, but launches may be due.
  for (auto& x : states_.gather(now, limits_.join, at_once))
    result.push_back(std::move(x));
  return result;
}

host_decisions host_roster::check(time_point now) {
  // The driver's own host is there as long as someone calls this.
  (void) states_.on_tick(0, own_.incarnation, now);
  return states_.check(now);
}

// -- ranks

void host_roster::attempt_started(std::vector<std::size_t> hosts) {
  std::erase_if(hosts, [this](std::size_t i) { return at(i).ranks == 0; });
  states_.on_attempt_started(hosts);
}

std::vector<host_share>
host_roster::shares_on(const std::vector<std::size_t>& hosts,
                       const world_range& world) const {
  std::vector<world_candidate> candidates;
  for (auto i : hosts)
    candidates.push_back({i, at(i).room.ranks, at(i).failed_starts > 0});
  return plan_world(candidates, world, all().size());
}

// Hosts without ranks have the first rank of the next one.
std::size_t host_roster::host_with(int rank) const {
  auto is_behind = [](int x, const run_host& host) {
    return x < host.first_rank;
  };
  auto next = std::upper_bound(all().begin(), all().end(), rank, is_behind);
  return static_cast<std::size_t>(next - all().begin()) - 1;
}

int host_roster::node_rank(std::size_t host) const {
  auto end = all().begin() + static_cast<std::ptrdiff_t>(host);
  return static_cast<int>(std::count_if(
    all().begin(), end, [](const run_host& x) { return x.ranks > 0; }));
}

void host_roster::close_ring() {
  auto last = std::find_if(all().rbegin(), all().rend(),
                           [](const run_host& x) { return x.ranks > 0; });
  states_.set_address(0, last->driver_address);
}

} // namespace troupe::internal
