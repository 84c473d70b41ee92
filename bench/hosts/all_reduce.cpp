// An all-reduce of 25 MiB of floats between 2 hosts with 2 ranks each: by
// `hierarchical`, plain and encrypted, and by flat Gloo, in turns.

#include <array>
#include <chrono>
#include <cstdlib>

#include <unistd.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "bench/hosts/namespace_hosts.hpp"
#include "bench/hosts/torch_takes.hpp"
#include "bench/numbers.hpp"
#include "bench/processes.hpp"
#include "bench/shared_numbers.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/trainers/torch/groups/c10d_groups.hpp"
#include "troupe/trainers/torch/groups/hierarchical_group.hpp"
#include "troupe/trainers/train_error.hpp"

namespace troupe::internal::bench {

namespace {

constexpr int hosts = 2;
constexpr int local_ranks = 2;
constexpr int ranks = hosts * local_ranks;
constexpr std::size_t rounds = 10;
constexpr std::int64_t bytes = std::int64_t{25} << 20;
constexpr auto patience = std::chrono::minutes{1};

/// How long a payload takes in TCP segments with time stamps, on a wire of
/// 1 Gbit.
constexpr double wire_ms =
  static_cast<double>(bytes) * 8 / 1e9 * 1e3 * (1514.0 / 1448.0);

enum kind : std::size_t { plain, encrypted, gloo, kinds };

double time_of(c10d::Backend& group, std::vector<at::Tensor>& x) {
  x[0].fill_(1); // avoids overflowing sums
  group.barrier(c10d::BarrierOptions{})->wait();
  auto before = now();
  group.allreduce(x, c10d::AllreduceOptions{})->wait();
  auto result = now() - before;
  if (!x[0].eq(ranks).all().item<bool>())
    std::abort();
  return result * 1e3;
}

std::string get(c10d::Store& store, const std::string& key) {
  auto value = store.get(key);
  return {value.begin(), value.end()};
}

/// Rank 0 makes the credentials of all.
link_credentials share_credentials(c10d::Store& store, int rank) {
  auto set = [&](const std::string& key, const std::string& value) {
    store.set(key, std::vector<std::uint8_t>{value.begin(), value.end()});
  };
  if (rank == 0) {
    auto x = value_or_throw(make_link_credentials("bench"));
    set("authority", x.authority);
    set("certificate", x.certificate);
    set("key", x.key);
  }
  return {get(store, "authority"), get(store, "certificate"),
          get(store, "key")};
}

struct rank_place {
  int host;
  int local;

  int rank() const { return host * local_ranks + local; }
  std::string name() const { return concat('h', host + 1); }
  std::string address() const { return concat("198.18.0.", host + 1); }
};

c10::intrusive_ptr<c10d::Backend>
join(c10d::Store& store, const rank_place& x, shared_segment segment,
     std::shared_ptr<link_security> security) {
  join_ring_args how;
  how.security = std::move(security);
  auto meeting = value_or_throw(host_meeting::begin(
    store, {x.rank(), x.local, local_ranks, ranks, x.name(), x.address()},
    how));
  return c10::make_intrusive<hierarchical_group>(
    std::move(segment), x.local, value_or_throw(meeting.join(store, how)),
    patience);
}

void run_rank(const std::string& folder, const rank_place& place,
              shared_segment& for_plain, shared_segment& for_encrypted) {
  at::set_num_threads(1);
  auto base = c10::make_intrusive<c10d::FileStore>(folder + "/store", ranks);
  auto part = [&](const char* name) {
    return c10::make_intrusive<c10d::PrefixStore>(name, base);
  };
  auto attached = [](const shared_segment& x) {
    return value_or_throw(shared_segment::attach(x.descriptor()));
  };
  auto credentials = share_credentials(*base, place.rank());
  std::array<c10::intrusive_ptr<c10d::Backend>, kinds> groups;
  groups[plain] =
    join(*part("plain"), place, attached(for_plain), plain_links());
  groups[encrypted] =
    join(*part("encrypted"), place, attached(for_encrypted),
         value_or_throw(encrypted_links(credentials, "bench")));
  groups[gloo] = make_gloo_group(part("gloo"), place.rank(), ranks,
                                 place.address(), patience);
  std::vector<at::Tensor> x{at::ones({bytes / 4})};
  shared_numbers times{folder + "/times", kinds * rounds};
  for (auto& group : groups)
    time_of(*group, x); // the warm-up
  for (std::size_t round = 0; round < rounds; ++round)
    for (std::size_t kind = 0; kind < kinds; ++kind)
      if (auto ms = time_of(*groups[kind], x); place.rank() == 0)
        times[kind * rounds + round] = ms;
  groups[plain]->barrier(c10d::BarrierOptions{})->wait();
}

/// Medians in ms.
using medians = std::array<double, kinds>;

/// On a wire of *mbit*; 0: without a limit.
medians measure(workplace& place, int mbit) {
  namespace_hosts network{place, hosts};
  auto folder = place.new_path("all_reduce");
  fs::create_directory(folder);
  for (int host = 1; host <= hosts && mbit > 0; ++host)
    network.call(concat("rate h", host, ' ', mbit));
  std::vector<pid_t> started;
  for (int host = 1; host <= hosts; ++host)
    started.push_back(network.start(
      host, {own_program(), "--all-reduce", folder, std::to_string(host - 1)}));
  for (auto pid : started)
    network.await(pid);
  shared_numbers times{folder + "/times", kinds * rounds};
  medians result{};
  for (std::size_t kind = 0; kind < kinds; ++kind)
    result[kind] = median(times.part(kind * rounds, rounds));
  return result;
}

const medians& at_1_gbit(workplace& place) {
  static const auto result = measure(place, 1000);
  return result;
}

const medians& without_limit(workplace& place) {
  static const auto result = measure(place, 0);
  return result;
}

} // namespace

int run_all_reduce_host(const std::string& folder, int host) {
  auto for_plain = value_or_throw(shared_segment::create(local_ranks));
  auto for_encrypted = value_or_throw(shared_segment::create(local_ranks));
  run_bare_ranks(local_ranks, [&](int local) {
    run_rank(folder, {host, local}, for_plain, for_encrypted);
  });
  return 0;
}

figure all_reduce_hosts(workplace& place) {
  auto& x = at_1_gbit(place);
  return {x[plain], x[gloo]};
}

figure all_reduce_hosts_wire(workplace& place) {
  return {at_1_gbit(place)[plain], wire_ms};
}

figure all_reduce_hosts_tls(workplace& place) {
  auto& x = at_1_gbit(place);
  return {x[encrypted], x[plain]};
}

figure all_reduce_hosts_fast(workplace& place) {
  auto& x = without_limit(place);
  return {x[plain], x[gloo]};
}

figure all_reduce_hosts_fast_tls(workplace& place) {
  auto& x = without_limit(place);
  return {x[encrypted], x[plain]};
}

} // namespace troupe::internal::bench
