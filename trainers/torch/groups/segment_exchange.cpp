#include "troupe/trainers/torch/groups/segment_exchange.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>

#include <c10/core/ScalarType.h>
#include <c10/util/StringUtil.h>
#include <unistd.h>

#include "troupe/runtime/process/shared_segment.hpp"
#include "troupe/runtime/process/usable_cores.hpp"
#include "troupe/runtime/rank_names.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/timing.hpp"
#include "troupe/trainers/torch/groups/reduction.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe::internal {

namespace {

const char* name_of(collective_kind kind) {
  switch (kind) {
    case collective_kind::barrier:
      return "barrier";
    case collective_kind::all_reduce:
      return "all-reduce";
    case collective_kind::reduce:
      return "reduce";
    case collective_kind::broadcast:
      return "broadcast";
    case collective_kind::all_gather:
      return "all-gather";
    case collective_kind::gather:
      return "gather";
    case collective_kind::scatter:
      return "scatter";
    case collective_kind::reduce_scatter:
      return "reduce-scatter";
  }
  return "unknown collective";
}

const char* name_of(reduction_op op) {
  constexpr const char* names[] = {"sum", "average", "product", "min",
                                   "max", "and",     "or",      "xor"};
  return names[static_cast<std::size_t>(op) % std::size(names)];
}

bool reduces(collective_kind kind) {
  return kind == collective_kind::all_reduce || kind == collective_kind::reduce
         || kind == collective_kind::reduce_scatter;
}

} // namespace

std::string to_string(const collective_fingerprint& x) {
  std::string result = name_of(x.kind);
  result += ' ';
  result += std::to_string(x.sequence);
  if (x.kind == collective_kind::barrier)
    return result;
  result += c10::str(" of ", x.elements, " elements of ",
                     c10::toString(static_cast<c10::ScalarType>(x.type)));
  if (reduces(x.kind)) {
    result += " (";
    result += name_of(static_cast<reduction_op>(x.op));
    result += ')';
  }
  if (x.root >= 0)
    result += c10::str(" with root ", x.root);
  return result;
}

namespace {

static_assert(sizeof(collective_fingerprint) <= sizeof(segment_rank{}.note[0])
              && std::is_trivially_copyable_v<collective_fingerprint>);

/// A few microseconds: less than a sleep and a wake-up cost. A rank that shares
/// its core with another must not keep it from arriving.
int spins_for(int ranks) {
  auto own = own_cores();
  // A pinned rank has its cores for itself; all others share what they see.
  auto online = static_cast<std::size_t>(::sysconf(_SC_NPROCESSORS_ONLN));
  return own.numbers.size() < online || ranks <= own.count ? 100 : 0;
}

} // namespace

segment_exchange::segment_exchange(shared_segment segment, int rank, int first)
  : segment_(std::move(segment)), rank_(rank), first_(first),
    spins_(spins_for(segment_.ranks())) {}

segment_exchange::~segment_exchange() {
  segment_.rank(rank_).leave("its group was closed");
}

void segment_exchange::open(collective_fingerprint fingerprint,
                            std::chrono::milliseconds timeout,
                            const void* payload, std::size_t bytes) {
  if (failure_)
    throw train_error{*failure_};
  fingerprint.sequence = fingerprint_.sequence + 1;
  fingerprint_ = fingerprint;
  timeout_ = timeout;
  deadline_ =
    std::chrono::steady_clock::now() + std::min(timeout, longest_limit);
  segment_.activity(rank_).enter_collective();
  // Two fingerprints and payloads suffice: no rank shows the next but one
  // before all have shown the next and so have read this one.
  auto parity = fingerprint_.sequence & 1;
  std::memcpy(segment_.rank(rank_).note[parity].data(), &fingerprint_,
              sizeof(fingerprint_));
  if (bytes != 0)
    std::memcpy(segment_.inline_area(rank_, parity), payload, bytes);
  advance();
  meet();
  compare_fingerprints();
}

void segment_exchange::grant(std::chrono::milliseconds grace) noexcept {
  deadline_ = std::chrono::steady_clock::now()
              + std::min(timeout_, longest_limit) + grace;
}

void segment_exchange::meet() {
  if (segment_.aborted())
    fail(segment_.abort_reason());
  for (int peer = 0; peer < ranks(); ++peer)
    if (peer != rank_)
      wait_for(peer);
}

void segment_exchange::wait_for(int peer) {
  auto& words = segment_.rank(peer);
  if (words.reached(step_))
    return;
  struct stopwatch {
    ~stopwatch() { sum.fetch_add(rank_activity::now() - begin); }
    std::atomic<rank_activity::clock::rep>& sum;
    rank_activity::clock::rep begin = rank_activity::now();
  } watch{segment_.activity(rank_).waited};
  switch (words.wait_for(step_, spins_, deadline_, cancelled_)) {
    case segment_wait::reached:
      return;
    case segment_wait::left:
      fail(failure_of(peer, false));
    case segment_wait::timed_out:
      auto reason = failure_of(peer, true);
      if (reason.code == ec::timeout)
        segment_.activity(rank_).give_up_collective();
      fail(std::move(reason));
  }
}

void segment_exchange::advance() noexcept {
  ++step_;
  segment_.rank(rank_).advance();
}

const std::byte* segment_exchange::payload(int rank) const noexcept {
  return segment_.inline_area(rank, fingerprint_.sequence & 1);
}

void segment_exchange::spread(int root, std::byte* data, std::size_t bytes) {
  if (ranks() == 1)
    return;
  const bool gives = root == rank_;
  const segment_chunks parts{bytes, shared_segment::chunk_bytes};
  for (std::size_t step = 0; step < parts.count() + 1; ++step) {
    meet();
    if (gives && step < parts.count())
      streaming_copy(chunk(root, step), data + parts[step].begin,
                     parts[step].size);
    if (!gives && data != nullptr && step >= 1)
      copy_bytes(data + parts[step - 1].begin, chunk(root, step - 1),
                 parts[step - 1].size);
    advance();
  }
}

void segment_exchange::deal(int root, const std::vector<const std::byte*>& in,
                            std::byte* out, std::size_t bytes) {
  auto local = static_cast<std::size_t>(ranks());
  auto share =
    shared_segment::chunk_bytes / local / segment_line * segment_line;
  const segment_chunks parts{bytes, share};
  for (std::size_t step = 0; step < parts.count() + 1; ++step) {
    meet();
    if (rank_ == root && step < parts.count())
      for (std::size_t r = 0; r < local; ++r)
        streaming_copy(chunk(root, step) + r * share, in[r] + parts[step].begin,
                       parts[step].size);
    if (step >= 1)
      copy_bytes(out + parts[step - 1].begin,
                 chunk(root, step - 1)
                   + static_cast<std::size_t>(rank_) * share,
                 parts[step - 1].size);
    advance();
  }
}

void segment_exchange::gather(const std::byte* in, std::size_t bytes,
                              const take_function& take) {
  const segment_chunks parts{bytes, shared_segment::chunk_bytes};
  for (std::size_t step = 0; step < parts.count() + 1; ++step) {
    meet();
    if (step < parts.count())
      streaming_copy(chunk(rank_, step), in + parts[step].begin,
                     parts[step].size);
    for (int r = 0; step >= 1 && r < ranks(); ++r)
      take(r, parts[step - 1], chunk(r, step - 1));
    advance();
  }
}

void segment_exchange::show_slices(const segment_chunks& chunks,
                                   std::size_t number,
                                   const std::byte* data) const {
  auto part = chunks[number];
  for (int r = 0; r < ranks(); ++r) {
    if (r == rank_)
      continue;
    auto cut = segment_slice(chunks, part, r, ranks());
    streaming_copy(chunk(rank_, number) + cut.begin,
                   data + part.begin + cut.begin, cut.size);
  }
}

void segment_exchange::compare_fingerprints() {
  auto parity = fingerprint_.sequence & 1;
  std::string others;
  for (int peer = 0; peer < ranks(); ++peer) {
    collective_fingerprint theirs;
    std::memcpy(&theirs, segment_.rank(peer).note[parity].data(),
                sizeof(theirs));
    if (!(theirs == fingerprint_))
      others += c10::str(", rank ", first_ + peer, " a ", to_string(theirs));
  }
  if (!others.empty())
    fail({ec::invalid_argument, c10::str("rank ", first_ + rank_,
                                         ": the ranks do not call the same "
                                         "collective: this one calls a ",
                                         to_string(fingerprint_), others)});
}

void segment_exchange::close() noexcept {
  segment_.activity(rank_).leave_collective();
}

void segment_exchange::cancel() noexcept {
  cancelled_.store(true);
  for (int peer = 0; peer < ranks(); ++peer)
    futex_wake_all(segment_.rank(peer).progress);
}

error segment_exchange::failure_of(int peer, bool timed_out) const {
  auto here = c10::str("rank ", first_ + rank_, ": ", to_string(fingerprint_));
  if (segment_.aborted()) {
    auto reason = segment_.abort_reason();
    return {reason.code, here + " was aborted: " + reason.message};
  }
  if (cancelled_.load())
    return {ec::stopped, here + " was cancelled: the group was closed"};
  if (!timed_out)
    return {ec::rank_failed,
            c10::str(here, " failed: rank ", first_ + peer,
                     " has left the group (",
                     std::string{segment_.rank(peer).left()}, ")")};
  std::vector<int> missing{first_ + peer};
  for (int i = peer + 1; i < ranks(); ++i)
    if (i != rank_ && !segment_.rank(i).reached(step_))
      missing.push_back(first_ + i);
  return {ec::timeout,
          c10::str(here, ": ", rank_list(missing), " did not arrive within ",
                   duration_text(timeout_))};
}

void segment_exchange::fail(error reason) {
  failure_ = reason;
  segment_.rank(rank_).leave(reason.message);
  throw train_error{std::move(reason)};
}

} // namespace troupe::internal
