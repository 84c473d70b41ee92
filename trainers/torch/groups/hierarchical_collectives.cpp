#include "troupe/trainers/torch/groups/hierarchical_collectives.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "troupe/runtime/text.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe::internal {

namespace {

static_assert(sizeof(collective_fingerprint) <= sizeof(ring_note));

/// How much longer than its leader a rank waits, so that the leader says which
/// host is late.
constexpr std::chrono::seconds leaders_grace{5};

/// Steps from the one that copies a chunk in to the one at whose end it must
/// have gone around: two steps for the ring.
constexpr std::size_t ring_steps = 3;
static_assert(shared_segment::results == ring_steps + 1,
              "a result is read one step before its area is written again");

/// Chunks of smaller tensors are smaller, so that there are some to overlap.
constexpr std::size_t least_chunk = std::size_t{256} << 10;

std::size_t chunk_limit(std::size_t bytes) {
  return std::clamp(bytes / 8, least_chunk, shared_segment::chunk_bytes);
}

/// What ranks and hosts do before the sum of all is known.
reduction partial(const reduction& how) {
  auto op = how.op == reduction_op::average ? reduction_op::sum : how.op;
  return {how.type, op};
}

/// How hosts add to their sums.
host_ring::combine_function adding(const reduction& how) {
  return [how = partial(how)](std::byte* to, const std::byte* from,
                              std::size_t size) {
    const std::byte* sources[] = {from, to};
    how.apply(to, nullptr, sources, 2, size / size_of(how.type));
  };
}

/// Counts the time until its end as a wait of the rank.
class wait_watch {
public:
  explicit wait_watch(rank_activity& activity) : activity_(activity) {}
  ~wait_watch() { activity_.waited.fetch_add(rank_activity::now() - begin_); }

private:
  rank_activity& activity_;
  rank_activity::clock::rep begin_ = rank_activity::now();
};

} // namespace

std::string describe_note(const ring_note& x) {
  collective_fingerprint result;
  std::memcpy(&result, x.data(), sizeof(result));
  return to_string(result);
}

hierarchical_collectives::hierarchical_collectives(
  segment_exchange& exchange, std::vector<ring_host> hosts, std::size_t index,
  std::unique_ptr<host_ring> ring)
  : exchange_(exchange), hosts_(std::move(hosts)), index_(index),
    ring_(std::move(ring)) {
  if (leads()) {
    // The agent of the host aborts the segment.
    ring_->watch([this] { return exchange_.abort_reason(); });
    thread_ = std::make_unique<ring_thread>(*ring_);
  }
}

hierarchical_collectives::~hierarchical_collectives() {
  if (leads())
    ring_->abort({ec::stopped, "the group was closed"});
}

int hierarchical_collectives::rank() const noexcept {
  return hosts_[index_].first_rank + exchange_.rank();
}

int hierarchical_collectives::ranks() const noexcept {
  return hosts_.back().first_rank + hosts_.back().ranks;
}

std::size_t hierarchical_collectives::host_of(int rank) const noexcept {
  std::size_t result = 0;
  while (result + 1 < hosts_.size() && rank >= hosts_[result + 1].first_rank)
    ++result;
  return result;
}

// -- the end ------------------------------------------------------------------

void hierarchical_collectives::cancel() noexcept {
  exchange_.cancel();
  if (leads())
    ring_->abort({ec::stopped, "the group was closed"});
}

void hierarchical_collectives::abort(const error& reason) noexcept {
  exchange_.abort(reason);
  if (leads())
    ring_->abort(reason);
}

void hierarchical_collectives::guarded(const std::function<void()>& f) {
  try {
    f();
  } catch (const train_error& x) {
    if (leads())
      ring_->abort(x.reason());
    throw;
  }
}

void hierarchical_collectives::fail(const error& reason) {
  auto here = concat("rank ", rank(), ": ", to_string(exchange_.fingerprint()));
  if (auto aborted = exchange_.abort_reason())
    exchange_.fail(
      {aborted.code, concat(here, " was aborted: ", aborted.message)});
  if (reason.code == ec::timeout)
    exchange_.activity().give_up_collective();
  exchange_.fail({reason.code, concat(here, " failed: ", reason.message)});
}

// -- parts of collectives -----------------------------------------------------

void hierarchical_collectives::open(const call& x, const void* payload,
                                    std::size_t bytes) {
  exchange_.open(x.fingerprint, x.timeout, payload, bytes);
  if (!leads())
    exchange_.grant(leaders_grace);
}

host_ring::call hierarchical_collectives::ring_call() const {
  host_ring::call result;
  std::memcpy(result.note.data(), &exchange_.fingerprint(),
              sizeof(collective_fingerprint));
  result.deadline = exchange_.deadline();
  result.timeout = exchange_.timeout();
  return result;
}

void hierarchical_collectives::run(host_ring::ticket last) {
  wait_watch here{exchange_.activity()};
  if (auto done = ring_->run(last); !done)
    fail(done.error());
}

void hierarchical_collectives::await(host_ring::ticket last) {
  wait_watch here{exchange_.activity()};
  if (auto done = thread_->wait(last); !done)
    fail(done.error());
}

void hierarchical_collectives::spread(int root, std::byte* data,
                                      std::size_t bytes) {
  auto from = host_of(root);
  if (from == index_)
    exchange_.spread(root - hosts_[from].first_rank, data, bytes);
  if (leads())
    run(ring_->broadcast(ring_call(), {data, bytes}, from));
  if (from != index_)
    exchange_.spread(0, data, bytes);
}

void hierarchical_collectives::finish(std::byte* data, const std::byte* from,
                                      std::size_t count,
                                      const reduction& how) const {
  if (how.op == reduction_op::average)
    how.apply(data, nullptr, &from, 1, count, ranks());
  else
    copy_bytes(data, from, count * size_of(how.type));
}

std::vector<std::span<std::byte>>
hierarchical_collectives::blocks_of(std::byte* data, std::size_t bytes) const {
  std::vector<std::span<std::byte>> result;
  for (auto& host : hosts_)
    result.emplace_back(data
                          + static_cast<std::size_t>(host.first_rank) * bytes,
                        static_cast<std::size_t>(host.ranks) * bytes);
  return result;
}

// -- collectives --------------------------------------------------------------

void hierarchical_collectives::barrier(const call& x) {
  guarded([&] {
    open(x);
    if (leads()) {
      std::vector<std::byte> marks(hosts_.size());
      std::vector<std::span<std::byte>> blocks;
      for (auto& mark : marks)
        blocks.emplace_back(&mark, 1);
      run(ring_->all_gather(ring_call(), blocks));
    }
    exchange_.advance();
    exchange_.meet();
  });
}

void hierarchical_collectives::all_reduce(const call& x, std::byte* data,
                                          std::size_t count,
                                          const reduction& how) {
  auto width = size_of(how.type);
  auto bytes = count * width;
  auto root = x.fingerprint.root;
  const segment_chunks parts{bytes, chunk_limit(bytes)};
  chunked_sum sum{parts, how, {}, {}};
  sum.submit = [&](std::byte* chunk, std::size_t size) {
    return root < 0
             ? ring_->all_reduce(ring_call(), {chunk, size}, width, adding(how))
             : ring_->reduce(ring_call(), {chunk, size}, width, adding(how),
                             host_of(root));
  };
  if (root < 0 || root == rank())
    sum.take = [&](std::size_t i, const std::byte* from) {
      finish(data + parts[i].begin, from, parts[i].size / width, how);
    };
  add_up(x, data, bytes, sum);
}

void hierarchical_collectives::add_up(const call& x, std::byte* data,
                                      std::size_t bytes,
                                      const chunked_sum& sum) {
  guarded([&] {
    if (bytes <= shared_segment::inline_bytes) {
      open(x, data, bytes);
      reduce_small(bytes, sum);
      return;
    }
    open(x);
    if (exchange_.ranks() == 1)
      reduce_alone(data, bytes, sum);
    else
      reduce_chunks(data, sum);
  });
}

void hierarchical_collectives::reduce_small(std::size_t bytes,
                                            const chunked_sum& x) {
  auto* sum = exchange_.result(0);
  if (leads()) {
    std::vector<const std::byte*> sources;
    for (int r = 0; r < exchange_.ranks(); ++r)
      sources.push_back(exchange_.payload(r));
    partial(x.how).apply(sum, nullptr, sources.data(), exchange_.ranks(),
                         bytes / size_of(x.how.type));
    run(x.submit(sum, bytes));
  }
  exchange_.advance();
  exchange_.meet();
  if (x.take)
    x.take(0, sum);
}

void hierarchical_collectives::reduce_alone(std::byte* data, std::size_t bytes,
                                            const chunked_sum& x) {
  std::vector<std::byte> copy;
  if (!x.take)
    copy.assign(data, data + bytes);
  auto* sum = x.take ? data : copy.data();
  // The same chunks as hosts with more ranks.
  host_ring::ticket last = 0;
  for (std::size_t i = 0; i < x.parts.count(); ++i)
    last = x.submit(sum + x.parts[i].begin, x.parts[i].size);
  run(last);
  for (std::size_t i = 0; x.take && i < x.parts.count(); ++i)
    x.take(i, sum + x.parts[i].begin);
}

void hierarchical_collectives::reduce_chunks(const std::byte* data,
                                             const chunked_sum& x) {
  auto me = exchange_.rank();
  auto local = exchange_.ranks();
  auto width = size_of(x.how.type);
  auto& parts = x.parts;
  std::vector<const std::byte*> sources(static_cast<std::size_t>(local));
  std::vector<host_ring::ticket> tickets(parts.count());
  for (std::size_t step = 0; step < parts.count() + ring_steps + 1; ++step) {
    exchange_.meet();
    // All ranks of this host have reduced their slices of this chunk.
    if (auto i = step - 2; leads() && step >= 2 && i < parts.count()) {
      tickets[i] = x.submit(exchange_.result(i), parts[i].size);
      if (auto started = thread_->start(tickets[i]); !started)
        fail(started.error());
    }
    if (step < parts.count())
      exchange_.show_slices(parts, step, data);
    if (auto i = step - 1; step >= 1 && i < parts.count()) {
      auto part = parts[i];
      auto cut = segment_slice(parts, part, me, local);
      for (int r = 0; r < local; ++r)
        sources[static_cast<std::size_t>(r)] =
          r == me ? data + part.begin + cut.begin
                  : exchange_.chunk(r, i) + cut.begin;
      partial(x.how).apply(exchange_.result(i) + cut.begin, nullptr,
                           sources.data(), local, cut.size / width);
    }
    if (auto i = step - ring_steps - 1;
        x.take && step >= ring_steps + 1 && i < parts.count())
      x.take(i, exchange_.result(i));
    if (auto i = step - ring_steps;
        leads() && step >= ring_steps && i < parts.count())
      await(tickets[i]);
    exchange_.advance();
  }
}

void hierarchical_collectives::broadcast(const call& x, std::byte* data,
                                         std::size_t bytes) {
  guarded([&] {
    open(x);
    spread(x.fingerprint.root, data, bytes);
  });
}

void hierarchical_collectives::all_gather(const call& x, const std::byte* in,
                                          std::size_t bytes,
                                          const std::vector<std::byte*>& out) {
  auto root = x.fingerprint.root;
  const bool host_takes = root < 0 || host_of(root) == index_;
  auto first = static_cast<std::size_t>(hosts_[index_].first_rank);
  std::vector<std::byte> all;
  if (leads() || host_takes)
    all.resize(bytes * static_cast<std::size_t>(ranks()));
  guarded([&] {
    open(x);
    exchange_.gather(
      in, bytes, [&](int r, segment_piece part, const std::byte* from) {
        if (leads())
          copy_bytes(all.data() + (first + static_cast<std::size_t>(r)) * bytes
                       + part.begin,
                     from, part.size);
      });
    if (leads())
      run(root < 0
            ? ring_->all_gather(ring_call(), blocks_of(all.data(), bytes))
            : ring_->gather(ring_call(), blocks_of(all.data(), bytes),
                            host_of(root)));
    if (host_takes)
      exchange_.spread(0, all.data(), all.size());
  });
  for (std::size_t r = 0; r < out.size(); ++r)
    copy_bytes(out[r], all.data() + r * bytes, bytes);
}

void hierarchical_collectives::scatter(const call& x,
                                       const std::vector<const std::byte*>& in,
                                       std::byte* out, std::size_t bytes) {
  auto from = host_of(x.fingerprint.root);
  // The local rank that holds the parts of this host's ranks.
  auto giver =
    from == index_ ? x.fingerprint.root - hosts_[from].first_rank : 0;
  std::vector<std::byte> all;
  if (leads() || giver == exchange_.rank())
    all.resize(bytes * static_cast<std::size_t>(ranks()));
  for (std::size_t r = 0; r < in.size(); ++r)
    copy_bytes(all.data() + r * bytes, in[r], bytes);
  guarded([&] {
    open(x);
    if (giver != 0)
      exchange_.spread(giver, all.empty() ? nullptr : all.data(),
                       bytes * static_cast<std::size_t>(ranks()));
    auto blocks = blocks_of(all.data(), bytes);
    if (leads())
      run(ring_->scatter(ring_call(), blocks, from));
    std::vector<const std::byte*> parts;
    for (int r = 0; giver == exchange_.rank() && r < exchange_.ranks(); ++r)
      parts.push_back(blocks[index_].data()
                      + static_cast<std::size_t>(r) * bytes);
    exchange_.deal(giver, parts, out, bytes);
  });
}

// Chunk i has part i of all ranks, next to each other.
void hierarchical_collectives::reduce_scatter(
  const call& x, const std::vector<const std::byte*>& in, std::byte* out,
  std::size_t count, const reduction& how) {
  auto width = size_of(how.type);
  auto bytes = count * width;
  auto ranks = in.size();
  assert(ranks <= shared_segment::chunk_bytes / segment_line);
  const segment_chunks parts{bytes, chunk_limit(bytes * ranks) / ranks};
  chunked_sum sum{segment_chunks::of_many(parts, ranks), how, {}, {}};
  std::vector<std::byte> all(bytes * ranks);
  for (std::size_t i = 0; i < parts.count(); ++i)
    for (std::size_t r = 0; r < ranks; ++r)
      copy_bytes(all.data() + sum.parts[i].begin + r * parts[i].size,
                 in[r] + parts[i].begin, parts[i].size);
  sum.submit = [&](std::byte* chunk, std::size_t size) {
    return ring_->reduce_scatter(ring_call(), blocks_of(chunk, size / ranks),
                                 width, adding(how));
  };
  sum.take = [&](std::size_t i, const std::byte* from) {
    finish(out + parts[i].begin,
           from + static_cast<std::size_t>(rank()) * parts[i].size,
           parts[i].size / width, how);
  };
  add_up(x, all.data(), all.size(), sum);
}

} // namespace troupe::internal
