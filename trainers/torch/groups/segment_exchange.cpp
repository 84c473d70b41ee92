#include "troupe/trainers/torch/groups/segment_exchange.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include <sched.h>
#include <unistd.h>

#include "troupe/runtime/process/futex.hpp"
#include "troupe/runtime/process/segment_rank.hpp"
#include "troupe/trainers/torch/torch_config.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe {

namespace {

static_assert(sizeof(collective_note) <= sizeof(segment_rank{}.note[0])
              && std::is_trivially_copyable_v<collective_note>);

/// A few microseconds: less than a sleep and a wake-up cost. A rank that shares
/// its core with another must not keep it from arriving.
int spins_for(int ranks) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
    return 0;
  // A pinned rank has its cores for itself; all others share what they see.
  auto cores = CPU_COUNT(&allowed);
  auto online = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  return cores < online || ranks <= cores ? 100 : 0;
}

} // namespace

segment_exchange::segment_exchange(shared_segment segment, int rank)
  : segment_(std::move(segment)), rank_(rank),
    spins_(spins_for(segment_.ranks())) {}

segment_exchange::~segment_exchange() {
  segment_.rank(rank_).leave("its group was closed");
}

void segment_exchange::open(collective_note note,
                            std::chrono::milliseconds timeout,
                            const void* payload, std::size_t bytes) {
  if (failure_)
    throw train_error{*failure_};
  note.sequence = note_.sequence + 1;
  note_ = note;
  timeout_ = timeout;
  deadline_ =
    std::chrono::steady_clock::now() + std::min(timeout, longest_timeout);
  segment_.activity(rank_).enter_collective();
  // Two notes and payloads suffice: nobody shows the next but one before all
  // have shown the next and so have read this one.
  auto parity = note_.sequence & 1;
  std::memcpy(segment_.rank(rank_).note[parity].data(), &note_, sizeof(note_));
  if (bytes != 0)
    std::memcpy(segment_.inline_area(rank_, parity), payload, bytes);
  advance();
  meet();
  compare_notes();
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
      fail(explain(peer, false));
    case segment_wait::timed_out:
      auto reason = explain(peer, true);
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
  return segment_.inline_area(rank, note_.sequence & 1);
}

void segment_exchange::compare_notes() {
  auto parity = note_.sequence & 1;
  std::string others;
  for (int peer = 0; peer < ranks(); ++peer) {
    collective_note theirs;
    std::memcpy(&theirs, segment_.rank(peer).note[parity].data(),
                sizeof(theirs));
    if (!(theirs == note_))
      others += ", rank " + std::to_string(peer) + " a " + to_string(theirs);
  }
  if (!others.empty())
    fail({ec::invalid_argument, "rank " + std::to_string(rank_)
                                  + ": the ranks do not call the same "
                                    "collective: this one calls a "
                                  + to_string(note_) + others});
}

void segment_exchange::close() noexcept {
  segment_.activity(rank_).leave_collective();
}

void segment_exchange::cancel() noexcept {
  cancelled_.store(true);
  for (int peer = 0; peer < ranks(); ++peer)
    futex_wake_all(segment_.rank(peer).progress);
}

error segment_exchange::explain(int peer, bool timed_out) const {
  auto here = "rank " + std::to_string(rank_) + ": " + to_string(note_);
  if (segment_.aborted()) {
    auto reason = segment_.abort_reason();
    return {reason.code, here + " was aborted: " + reason.message};
  }
  if (cancelled_.load())
    return {ec::stopped, here + " was given up: the group was closed"};
  if (!timed_out)
    return {ec::rank_failed, here + " failed: rank " + std::to_string(peer)
                               + " has left the group ("
                               + std::string{segment_.rank(peer).left()} + ")"};
  auto missing = std::to_string(peer);
  for (int i = peer + 1; i < ranks(); ++i)
    if (i != rank_ && !segment_.rank(i).reached(step_))
      missing += ", " + std::to_string(i);
  return {ec::timeout, here + ": rank " + missing + " did not come within "
                         + std::to_string(timeout_.count()) + " ms"};
}

void segment_exchange::fail(error reason) {
  failure_ = reason;
  segment_.rank(rank_).leave(reason.message);
  throw train_error{std::move(reason)};
}

} // namespace troupe
