// A message of 64 MiB from a service to the loop of a rank, beside the same
// bytes through a Unix socket.

#include <stdexcept>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

#include <caf/scoped_actor.hpp>
#include <troupe/actors.hpp>

#include "numbers.hpp"
#include "processes.hpp"
#include "shared_numbers.hpp"
#include "takes.hpp"
#include "troupe/actors/compat/messaging.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal::bench {

namespace {

constexpr int rounds = 20;
constexpr int warm_up = 3;
constexpr std::size_t bytes = std::size_t{64} << 20;
constexpr auto limit = std::chrono::seconds{30};

/// What reading all of it costs at least: a word of each cache line.
std::uint64_t read_all(const std::byte* data) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < bytes; i += 64)
    sum += static_cast<std::uint64_t>(data[i]);
  return sum;
}

/// Takes messages until the run stops; the answer is the number that it read.
void loop(train_context& context) {
  rank_mailbox mailbox{context};
  for (;;) {
    auto x = mailbox.receive<shared_bytes>();
    auto sum = read_all(x.value.data());
    x.answer(static_cast<std::int64_t>(sum));
  }
}

/// The other side of the bare socket.
void receive_bare(int socket) {
  for (int round = 0; round < rounds; ++round) {
    // Each message has memory of its own, as ours has.
    auto data = std::make_unique_for_overwrite<std::byte[]>(bytes);
    for (std::size_t at = 0; at < bytes;) {
      auto size = ::read(socket, data.get() + at, bytes - at);
      if (size <= 0)
        throw std::runtime_error{"the bare socket broke"};
      at += static_cast<std::size_t>(size);
    }
    auto sum = read_all(data.get());
    if (::write(socket, &sum, sizeof(sum)) != sizeof(sum))
      throw std::runtime_error{"the bare socket broke"};
  }
}

void send_bare(int socket, const std::vector<std::byte>& data) {
  for (std::size_t at = 0; at < bytes;) {
    auto size = ::write(socket, data.data() + at, bytes - at);
    if (size <= 0)
      throw std::runtime_error{"the bare socket broke"};
    at += static_cast<std::size_t>(size);
  }
  std::uint64_t sum = 0;
  if (::read(socket, &sum, sizeof(sum)) != sizeof(sum))
    throw std::runtime_error{"the bare socket broke"};
}

std::vector<double> time_bare(workplace& place,
                              const std::vector<std::byte>& data) {
  auto ends = socket_pair("no bare socket");
  if (!ends)
    throw std::runtime_error{ends.error().message};
  shared_numbers times{place.new_path("bare"), rounds};
  run_bare_ranks(2, [&](int rank) {
    if (rank == 1)
      return receive_bare(ends->second.get());
    for (int round = 0; round < rounds; ++round) {
      auto begin = now();
      send_bare(ends->first.get(), data);
      times[static_cast<std::size_t>(round)] = now() - begin;
    }
  });
  return times.part(warm_up, rounds - warm_up);
}

/// The only rank of *run*, once it takes messages.
caf::actor find_rank(caf::scoped_actor& self, const run_control_actor& run) {
  caf::actor result;
  auto observer = self->spawn(
    [main = caf::actor{self}](
      rank_observer_actor::pointer) -> rank_observer_actor::behavior_type {
      return {[main](ranks_changed& x) { send_anonymous(main, std::move(x)); }};
    });
  send(self, run, follow_ranks{}, observer);
  auto is_known = false;
  self->receive_while([&] { return !is_known; })([&](const ranks_changed& x) {
    if ((is_known = x.is_complete()))
      result = x.ranks.at(0);
  });
  caf::anon_send_exit(observer, caf::exit_reason::user_shutdown);
  return result;
}

std::vector<double> time_messages(workplace& place,
                                  const std::vector<std::byte>& data) {
  system_config settings;
  caf::actor_system system{settings};
  auto run =
    data_parallel_trainer{loop, {.run = place.new_run()}}.start(system);
  if (!run)
    throw std::runtime_error{run.error().message};
  caf::scoped_actor self{system};
  auto rank = find_rank(self, run->control());
  auto expected_sum = static_cast<std::int64_t>(read_all(data.data()));
  std::vector<double> result;
  for (int round = 0; round < rounds; ++round) {
    auto begin = now();
    request(self, rank, limit, shared_bytes::copy_of(data))
      .receive(
        [&](std::int64_t sum) {
          result.push_back(now() - begin);
          if (sum != expected_sum)
            throw std::runtime_error{"the rank read something else"};
        },
        [](const caf::error& x) {
          throw std::runtime_error{from_caf(x).message};
        });
  }
  run->abort();
  (void) run->wait();
  return {result.begin() + warm_up, result.end()};
}

} // namespace

figure message_to_rank(workplace& place) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    data[i] = static_cast<std::byte>(i * 2654435761 >> 13);
  // Bare processes are forked: before there are threads of an actor system.
  auto bare = time_bare(place, data);
  return {median(time_messages(place, data)) * 1e3, median(bare) * 1e3};
}

} // namespace troupe::internal::bench
