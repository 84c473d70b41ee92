#include "troupe/trainers/ring/host_ring.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <sys/socket.h>

#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

constexpr std::uint64_t ring_magic = 0x7472'6f75'7065'7267;

/// Bytes that one call moves at most, so that the other direction gets its
/// turn.
constexpr std::size_t most_at_once = std::size_t{256} << 10;

/// How often a waiting host asks whether to keep waiting, if nothing wakes it.
constexpr std::chrono::milliseconds watch_interval{200};

/// Segments begin at cache lines: a whole number of elements of any type.
constexpr std::size_t line_bytes = 64;

enum : std::uint64_t {
  kind_all_reduce = 1,
  kind_broadcast,
  kind_all_gather,
  kind_reduce,
  kind_reduce_scatter,
  kind_scatter,
  kind_gather
};

std::size_t
size_of_all(const std::vector<std::span<std::byte>>& blocks) noexcept {
  std::size_t result = 0;
  for (auto& block : blocks)
    result += block.size();
  return result;
}

tl::unexpected<error> has_left(const ring_host& x) {
  return failure(ec::rank_failed, to_string(x) + " has left the group");
}

/// Segment *i* of *count* segments of *data*.
std::span<std::byte> segment_of(std::span<std::byte> data, std::size_t i,
                                std::size_t count) {
  auto share = (data.size() + count - 1) / count;
  share = (share + line_bytes - 1) / line_bytes * line_bytes;
  auto begin = std::min(i * share, data.size());
  return data.subspan(begin, std::min(share, data.size() - begin));
}

} // namespace

std::string to_string(const ring_host& x) {
  if (x.ranks == 1)
    return concat("host ", x.name, " (rank ", x.first_rank, ")");
  return concat("host ", x.name, " (ranks ", x.first_rank, "-",
                x.first_rank + x.ranks - 1, ")");
}

// -- host_ring ----------------------------------------------------------------

host_ring::host_ring(std::vector<ring_host> hosts, std::size_t index,
                     std::unique_ptr<byte_link> next,
                     std::unique_ptr<byte_link> previous,
                     describe_function describe)
  : hosts_(std::move(hosts)), index_(index), next_(std::move(next)),
    previous_(std::move(previous)), describe_(std::move(describe)) {
  bounce_.resize(most_at_once + line_bytes);
  if (!wake_)
    failure_ =
      system_failure(ec::spawn, "no descriptor for the ring of hosts").value();
}

host_ring::~host_ring() {
  close();
}

const ring_host& host_ring::next_host() const {
  return hosts_[(index_ + 1) % hosts_.size()];
}

const ring_host& host_ring::previous_host() const {
  return hosts_[(index_ + hosts_.size() - 1) % hosts_.size()];
}

// -- jobs ---------------------------------------------------------------------

host_ring::job host_ring::new_job(const call& x, std::uint64_t kind,
                                  std::size_t bytes) {
  job result;
  result.of = x;
  result.mine.magic = ring_magic;
  result.mine.bytes = bytes;
  result.mine.kind = kind;
  result.mine.note = x.note;
  // The headers; their memory is known once the job is in its place.
  result.out.push_back({{nullptr, sizeof(header)}, -1});
  result.in.push_back({{nullptr, sizeof(header)}, false, 0});
  return result;
}

host_ring::ticket host_ring::all_reduce(const call& x,
                                        std::span<std::byte> data,
                                        std::size_t width,
                                        combine_function combine) {
  auto job = new_job(x, kind_all_reduce, data.size());
  job.width = width;
  job.combine = std::move(combine);
  auto n = hosts_.size();
  // First each host gets the sum of one segment, which it completes; then
  // these go around. Each host passes on what it got before.
  for (std::size_t phase = 0; phase < 2 * (n - 1); ++phase) {
    auto sent = segment_of(data, (index_ + 2 * n - phase) % n, n);
    auto got = segment_of(data, (index_ + 2 * n - phase - 1) % n, n);
    job.out.push_back(
      {{sent.data(), sent.size()}, phase == 0 ? -1 : static_cast<int>(phase)});
    job.in.push_back({{got.data(), got.size()}, phase < n - 1, 0});
  }
  return submit(std::move(job));
}

host_ring::ticket host_ring::reduce(const call& x, std::span<std::byte> data,
                                    std::size_t width, combine_function combine,
                                    std::size_t root) {
  auto job = new_job(x, kind_reduce, data.size());
  job.width = width;
  job.combine = std::move(combine);
  auto distance = distance_from(root);
  const bool begins = distance == 1;
  if (!begins)
    job.in.push_back({{data.data(), data.size()}, true, 0});
  if (distance != 0)
    job.out.push_back({{data.data(), data.size()}, begins ? -1 : 1});
  return submit(std::move(job));
}

host_ring::ticket
host_ring::reduce_scatter(const call& x,
                          const std::vector<std::span<std::byte>>& blocks,
                          std::size_t width, combine_function combine) {
  auto job = new_job(x, kind_reduce_scatter, size_of_all(blocks));
  job.width = width;
  job.combine = std::move(combine);
  auto n = hosts_.size();
  // The last block that arrives is the own one.
  for (std::size_t phase = 0; phase + 1 < n; ++phase) {
    auto sent = blocks[(index_ + 2 * n - phase - 1) % n];
    auto got = blocks[(index_ + 2 * n - phase - 2) % n];
    job.out.push_back(
      {{sent.data(), sent.size()}, phase == 0 ? -1 : static_cast<int>(phase)});
    job.in.push_back({{got.data(), got.size()}, true, 0});
  }
  return submit(std::move(job));
}

host_ring::ticket
host_ring::scatter(const call& x,
                   const std::vector<std::span<std::byte>>& blocks,
                   std::size_t root) {
  auto job = new_job(x, kind_scatter, size_of_all(blocks));
  auto n = hosts_.size();
  auto distance = distance_from(root);
  // The block with the longest way is the first.
  for (auto to = n; to-- > 1;) {
    auto block = blocks[(root + to) % n];
    auto gate = -1;
    if (distance != 0 && to >= distance) {
      gate = static_cast<int>(job.in.size());
      job.in.push_back({{block.data(), block.size()}, false, 0});
    }
    if (to > distance)
      job.out.push_back({{block.data(), block.size()}, gate});
  }
  return submit(std::move(job));
}

host_ring::ticket
host_ring::gather(const call& x,
                  const std::vector<std::span<std::byte>>& blocks,
                  std::size_t root) {
  auto job = new_job(x, kind_gather, size_of_all(blocks));
  auto n = hosts_.size();
  auto distance = distance_from(root);
  auto own = distance == 0 ? n : distance;
  if (distance != 0)
    job.out.push_back({{blocks[index_].data(), blocks[index_].size()}, -1});
  // Each host sends its own block before those behind it.
  for (auto from = own; from-- > 1;) {
    auto block = blocks[(root + from) % n];
    auto gate = static_cast<int>(job.in.size());
    job.in.push_back({{block.data(), block.size()}, false, 0});
    if (distance != 0)
      job.out.push_back({{block.data(), block.size()}, gate});
  }
  return submit(std::move(job));
}

host_ring::ticket host_ring::broadcast(const call& x, std::span<std::byte> data,
                                       std::size_t root) {
  auto job = new_job(x, kind_broadcast, data.size());
  auto n = hosts_.size();
  const bool gives = index_ == root;
  if (!gives)
    job.in.push_back({{data.data(), data.size()}, false, 0});
  if ((index_ + 1) % n != root)
    job.out.push_back({{data.data(), data.size()}, gives ? -1 : 1});
  return submit(std::move(job));
}

host_ring::ticket
host_ring::all_gather(const call& x,
                      const std::vector<std::span<std::byte>>& blocks) {
  auto job = new_job(x, kind_all_gather, size_of_all(blocks));
  auto n = hosts_.size();
  for (std::size_t phase = 0; phase + 1 < n; ++phase) {
    auto sent = blocks[(index_ + n - phase) % n];
    auto got = blocks[(index_ + n - phase - 1) % n];
    job.out.push_back(
      {{sent.data(), sent.size()}, phase == 0 ? -1 : static_cast<int>(phase)});
    job.in.push_back({{got.data(), got.size()}, false, 0});
  }
  return submit(std::move(job));
}

host_ring::ticket host_ring::submit(job x) {
  ticket result = 0;
  {
    std::lock_guard guard{mutex_};
    result = first_ + jobs_.size();
    auto& job = jobs_.emplace_back(std::move(x));
    job.mine.ticket = result;
    if (hosts_.size() == 1) {
      job.out.clear();
      job.in.clear();
    } else {
      job.out.front().what.data = reinterpret_cast<std::byte*>(&job.mine);
      job.in.front().what.data = reinterpret_cast<std::byte*>(&job.theirs);
    }
  }
  wake_.notify();
  return result;
}

host_ring::job* host_ring::job_number(ticket x) {
  std::lock_guard guard{mutex_};
  return x < first_ + jobs_.size() ? &jobs_[x - first_] : nullptr;
}

void host_ring::drop_finished() {
  std::lock_guard guard{mutex_};
  while (!jobs_.empty() && first_ < sending_ && first_ < receiving_) {
    jobs_.pop_front();
    ++first_;
  }
}

// -- moving bytes -------------------------------------------------------------

expected<host_ring::progress> host_ring::send_some() {
  for (;;) {
    auto x = job_number(sending_);
    if (x == nullptr)
      return progress::idle;
    if (x->out_at == x->out.size()) {
      ++sending_;
      continue;
    }
    auto& item = x->out[x->out_at];
    auto there = item.gate < 0
                   ? item.what.size
                   : x->in[static_cast<std::size_t>(item.gate)].done;
    if (x->out_done == item.what.size) {
      ++x->out_at;
      x->out_done = 0;
      continue;
    }
    if (x->out_done == there)
      return progress::idle; // until more has arrived
    // After 0, the next call begins with the same bytes, as TLS demands.
    auto moved = next_->send({item.what.data + x->out_done,
                              std::min(there - x->out_done, most_at_once)});
    if (!moved)
      return has_left(next_host());
    x->out_done += *moved;
    return *moved == 0 ? progress::blocked : progress::moved;
  }
}

expected<host_ring::progress> host_ring::receive_some() {
  for (;;) {
    auto x = job_number(receiving_);
    if (x == nullptr)
      return progress::idle;
    if (x->in_at == x->in.size()) {
      ++receiving_;
      continue;
    }
    auto& item = x->in[x->in_at];
    if (item.done == item.what.size) {
      ++x->in_at;
      continue;
    }
    if (item.reduced)
      return receive_reduced(*x, item);
    auto moved =
      previous_->receive({item.what.data + item.done,
                          std::min(item.what.size - item.done, most_at_once)});
    if (!moved)
      return has_left(previous_host());
    item.done += *moved;
    if (x->in_at == 0 && item.done == item.what.size)
      TROUPE_TRY_VOID(check_header(*x));
    return *moved == 0 ? progress::blocked : progress::moved;
  }
}

expected<host_ring::progress> host_ring::receive_reduced(job& x,
                                                         incoming& item) {
  auto left = item.what.size - item.done - held_;
  auto moved =
    previous_->receive({bounce_.data() + held_, std::min(left, most_at_once)});
  if (!moved)
    return has_left(previous_host());
  if (*moved == 0)
    return progress::blocked;
  held_ += *moved;
  // Whole lines, which are aligned at their place; and what is left at the end.
  auto whole = held_ == item.what.size - item.done
                 ? held_
                 : held_ / line_bytes * line_bytes;
  if (whole != 0) {
    x.combine(item.what.data + item.done, bounce_.data(), whole);
    item.done += whole;
    held_ -= whole;
    std::memmove(bounce_.data(), bounce_.data() + whole, held_);
  }
  return progress::moved;
}

expected<void> host_ring::check_header(const job& x) const {
  if (x.theirs == x.mine)
    return {};
  auto peer = to_string(previous_host());
  if (x.theirs.magic != ring_magic)
    return failure(ec::protocol,
                   concat(peer, " sent bytes that begin no collective"));
  if (x.theirs.note != x.mine.note)
    return failure(ec::invalid_argument,
                   concat("the hosts do not call the same collective: this one "
                          "calls a ",
                          describe_(x.mine.note), ", ", peer, " a ",
                          describe_(x.theirs.note)));
  return failure(ec::invalid_argument,
                 concat(peer, " calls part ", x.theirs.ticket, " with ",
                        x.theirs.bytes, " bytes, this host part ",
                        x.mine.ticket, " with ", x.mine.bytes));
}

// -- the loop -----------------------------------------------------------------

error host_ring::stop_reason() const {
  std::lock_guard guard{mutex_};
  return stopped_;
}

error host_ring::late(const job& x) const {
  auto within = " within " + duration_text(x.of.timeout);
  if (x.in_at == x.in.size())
    return {ec::timeout,
            concat(to_string(next_host()), " did not take the data", within)};
  if (x.in_at == 0)
    return {ec::timeout,
            concat(to_string(previous_host()), " did not arrive", within)};
  return {ec::timeout,
          concat(to_string(previous_host()),
                 " did not send all data, nor say why: it, or a host before "
                 "it, hangs or is late",
                 within)};
}

expected<void> host_ring::wait_for_events(bool sends, const job& oldest) {
  auto now = clock::now();
  if (now >= oldest.of.deadline)
    return tl::unexpected{late(oldest)};
  // A neighbor that has nothing to do for this host may leave.
  const bool receives = job_number(receiving_) != nullptr;
  pollfd waits[] = {{wake_.fd(), POLLIN, 0},
                    {receives ? previous_->socket() : -1, POLLIN, 0},
                    {sends ? next_->socket() : -1, POLLOUT, 0}};
  wait_until_ready(waits, std::min<clock::time_point>(oldest.of.deadline,
                                                      now + watch_interval));
  if (waits[0].revents != 0)
    wake_.clear();
  return {};
}

expected<void> host_ring::work_until(ticket last) {
  for (;;) {
    if (auto reason = stop_reason())
      return tl::unexpected{std::move(reason)};
    auto sent = send_some();
    auto got = receive_some();
    // A neighbor that left may have said first what it calls.
    while (!sent && got && *got == progress::moved)
      got = receive_some();
    if (!got && (sent || got.error().code == ec::invalid_argument))
      return tl::unexpected{std::move(got).error()};
    if (!sent)
      return tl::unexpected{std::move(sent).error()};
    drop_finished();
    if (first_ > last)
      return {};
    if (*sent == progress::moved || *got == progress::moved)
      continue;
    if (auto reason = watch_ ? watch_() : error{})
      return tl::unexpected{std::move(reason)};
    TROUPE_TRY_VOID(
      wait_for_events(*sent == progress::blocked, *job_number(first_)));
  }
}

expected<void> host_ring::run(ticket last) {
  if (failure_)
    return tl::unexpected{failure_};
  auto result = work_until(last);
  if (!result) {
    // What a neighbor saw first may follow from the abort.
    if (auto reason = stop_reason())
      result = tl::unexpected{std::move(reason)};
    failure_ = result.error();
    close();
  }
  return result;
}

void host_ring::abort(const error& reason) noexcept {
  std::lock_guard guard{mutex_};
  if (stopped_)
    return;
  stopped_ = reason;
  wake_.notify();
  close();
}

void host_ring::close() noexcept {
  // The descriptors stay open: another thread may be about to use them.
  for (auto* x : {next_.get(), previous_.get()})
    if (x != nullptr)
      ::shutdown(x->socket(), SHUT_RDWR);
}

} // namespace troupe::internal
