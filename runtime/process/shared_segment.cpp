#include "troupe/runtime/process/shared_segment.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <cstdint>
#include <ctime>
#include <string_view>
#include <utility>

#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/timing.hpp"

namespace troupe::internal {

static_assert(sizeof(std::atomic<std::uint32_t>) == 4
              && std::atomic<std::uint32_t>::is_always_lock_free);

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value,
                std::chrono::steady_clock::time_point deadline) noexcept {
  using namespace std::chrono;
  // FUTEX_WAIT_BITSET takes an absolute time on the clock of steady_clock.
  auto since = deadline.time_since_epoch();
  auto whole = duration_cast<seconds>(since);
  timespec limit{};
  limit.tv_sec = static_cast<time_t>(whole.count());
  limit.tv_nsec = static_cast<long>(nanoseconds{since - whole}.count());
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT_BITSET,
          value, &limit, nullptr, FUTEX_BITSET_MATCH_ANY);
}

void futex_wake_all(std::atomic<std::uint32_t>& word) noexcept {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE,
          INT_MAX, nullptr, nullptr, 0);
}

namespace {

/// How much longer a wait takes after it and its peer stood still, perhaps with
/// all processes of their container.
constexpr std::chrono::seconds standstill_grace{5};

constexpr std::uint32_t leave_bit = 1;
constexpr std::uint32_t one_step = 2;

bool at_least(std::uint32_t progress, std::uint32_t step) noexcept {
  auto ahead = (progress & ~leave_bit) - step * one_step;
  return static_cast<std::int32_t>(ahead) >= 0;
}

void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

} // namespace

void segment_rank::advance() noexcept {
  progress.fetch_add(one_step);
  if (sleepers.load() != 0)
    futex_wake_all(progress);
}

bool segment_rank::reached(std::uint32_t step) const noexcept {
  return at_least(progress.load(std::memory_order_acquire), step);
}

segment_wait
segment_rank::wait_for(std::uint32_t step, int spins,
                       std::chrono::steady_clock::time_point deadline,
                       const std::atomic<bool>& cancelled) noexcept {
  for (auto has_grace = true;;) {
    auto now = progress.load(std::memory_order_acquire);
    if (at_least(now, step))
      return segment_wait::reached;
    if ((now & leave_bit) != 0 || cancelled.load())
      return segment_wait::left;
    if (spins-- > 0) {
      relax();
      continue;
    }
    if (auto late = std::chrono::steady_clock::now() - deadline;
        late >= late.zero()) {
      if (late <= standstill_margin || !std::exchange(has_grace, false))
        return segment_wait::timed_out;
      deadline += late + standstill_grace;
    }
    // The order (count up, look again in the kernel) and that of advance()
    // (count, look for sleepers) leave no gap to lose a wake-up in.
    sleepers.fetch_add(1);
    futex_wait(progress, now, deadline);
    sleepers.fetch_sub(1);
  }
}

void segment_rank::leave(std::string_view why) noexcept {
  std::uint32_t here = 0;
  if (departure.compare_exchange_strong(here, 1)) {
    departure_length = static_cast<std::uint32_t>(
      why.copy(departure_text.data(), departure_text.size()));
    departure.store(2, std::memory_order_release);
  }
  release_waiters();
}

std::string_view segment_rank::left() const noexcept {
  if (departure.load(std::memory_order_acquire) != 2)
    return {};
  return {departure_text.data(),
          std::min<std::size_t>(departure_length, departure_text.size())};
}

void segment_rank::release_waiters() noexcept {
  progress.fetch_or(leave_bit);
  futex_wake_all(progress);
}

/// The first page of a `shared_segment`.
struct segment_header {
  static constexpr std::uint64_t expected_magic = 0x7472'6f75'7065'7367;
  static constexpr std::uint32_t expected_version = 6;

  std::uint64_t magic;
  std::uint32_t version;
  std::int32_t ranks;

  /// The attempt that the segment serves.
  std::uint64_t attempt;
  std::uint32_t run_id_length;
  std::array<char, 128> run_id;

  /// Not 0: every wait ends.
  alignas(64) std::atomic<std::uint32_t> aborted;

  /// 0: none, 1: being written, 2: written.
  std::atomic<std::uint32_t> reason;
  std::uint32_t reason_code;
  std::uint32_t reason_length;
  std::array<char, 496> reason_text;
};

namespace {

constexpr std::size_t page = 4096;

constexpr std::size_t round_to_page(std::size_t x) {
  return (x + page - 1) / page * page;
}

constexpr std::size_t ranks_offset = round_to_page(sizeof(segment_header));

std::size_t areas_offset(int ranks) {
  return ranks_offset
         + round_to_page(sizeof(segment_rank)
                         * static_cast<std::size_t>(ranks));
}

constexpr std::size_t area_bytes =
  2 * (shared_segment::inline_bytes + shared_segment::chunk_bytes);

std::size_t size_for(int ranks) {
  return areas_offset(ranks) + area_bytes * static_cast<std::size_t>(ranks)
         + shared_segment::results * shared_segment::chunk_bytes;
}

} // namespace

expected<shared_segment> shared_segment::create(int ranks,
                                                const segment_owner& whose) {
  if (ranks < 1 || ranks > max_ranks)
    return failure(ec::invalid_argument,
                   concat("a shared segment is for 1 to ", max_ranks,
                          " ranks, not ", ranks));
  int descriptor =
    ::memfd_create("troupe-segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0)
    return system_failure(ec::spawn, "the shared segment could not be created");
  shared_segment result{nullptr, size_for(ranks), descriptor, true};
  // Sealed: a segment that shrinks would kill its readers with SIGBUS.
  if (::ftruncate(descriptor, static_cast<off_t>(result.size_)) != 0
      || ::fcntl(descriptor, F_ADD_SEALS,
                 F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
           != 0)
    return system_failure(ec::spawn, "the shared segment could not be sized");
  void* base = ::mmap(nullptr, result.size_, PROT_READ | PROT_WRITE, MAP_SHARED,
                      descriptor, 0);
  if (base == MAP_FAILED)
    return system_failure(ec::spawn, "the shared segment could not be mapped");
  result.base_ = base;
  auto& header = result.header();
  header.magic = segment_header::expected_magic;
  header.version = segment_header::expected_version;
  header.ranks = ranks;
  header.attempt = whose.attempt;
  header.run_id_length = static_cast<std::uint32_t>(
    whose.run_id.copy(header.run_id.data(), header.run_id.size()));
  return result;
}

expected<shared_segment> shared_segment::attach(int descriptor,
                                                const segment_owner& whose) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0)
    return system_failure(
      ec::spawn, concat("descriptor ", descriptor, " of the shared segment"));
  auto size = static_cast<std::size_t>(status.st_size);
  auto foreign = [&] {
    return failure(ec::protocol,
                   concat("descriptor ", descriptor,
                          " is not a shared segment of this version"));
  };
  if (size < ranks_offset)
    return foreign();
  void* base =
    ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (base == MAP_FAILED)
    return system_failure(ec::spawn, "the shared segment could not be mapped");
  shared_segment result{base, size, descriptor, false};
  auto& header = result.header();
  if (header.magic != segment_header::expected_magic
      || header.version != segment_header::expected_version || header.ranks < 1
      || header.ranks > max_ranks || size_for(header.ranks) != size)
    return foreign();
  auto run_id = std::string_view{
    header.run_id.data(),
    std::min<std::size_t>(header.run_id_length, header.run_id.size())};
  if (header.attempt != whose.attempt
      || run_id != whose.run_id.substr(0, header.run_id.size()))
    return failure(ec::protocol,
                   concat("the shared segment is of attempt ", header.attempt,
                          " of run ", run_id, ", not of attempt ",
                          whose.attempt, " of run ", whose.run_id));
  return result;
}

shared_segment::shared_segment(shared_segment&& other) noexcept
  : base_(std::exchange(other.base_, nullptr)),
    size_(std::exchange(other.size_, 0)),
    descriptor_(std::exchange(other.descriptor_, -1)),
    owned_(std::exchange(other.owned_, false)) {}

shared_segment& shared_segment::operator=(shared_segment&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(size_, other.size_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(owned_, other.owned_);
  return *this;
}

shared_segment::~shared_segment() {
  if (base_)
    ::munmap(base_, size_);
  if (owned_)
    ::close(descriptor_);
}

int shared_segment::ranks() const noexcept {
  return header().ranks;
}

void shared_segment::abort(const error& reason) noexcept {
  auto& shared = header();
  std::uint32_t none = 0;
  if (shared.reason.compare_exchange_strong(none, 1)) {
    shared.reason_code = static_cast<std::uint32_t>(reason.code);
    shared.reason_length = static_cast<std::uint32_t>(reason.message.copy(
      shared.reason_text.data(), shared.reason_text.size()));
    shared.reason.store(2, std::memory_order_release);
  }
  shared.aborted.store(1);
  for (int i = 0; i < ranks(); ++i)
    rank(i).release_waiters();
}

bool shared_segment::aborted() const noexcept {
  return header().aborted.load(std::memory_order_acquire) != 0;
}

error shared_segment::abort_reason() const {
  if (!aborted())
    return {};
  auto& shared = header();
  if (shared.reason.load(std::memory_order_acquire) != 2)
    return {ec::stopped, "the attempt was ended"};
  auto length =
    std::min<std::size_t>(shared.reason_length, shared.reason_text.size());
  return {static_cast<ec>(shared.reason_code),
          {shared.reason_text.data(), length}};
}

segment_header& shared_segment::header() const noexcept {
  return *static_cast<segment_header*>(base_);
}

segment_rank& shared_segment::rank(int rank) const noexcept {
  auto* first = static_cast<std::byte*>(base_) + ranks_offset;
  return reinterpret_cast<segment_rank*>(first)[rank];
}

rank_activity& shared_segment::activity(int rank) const noexcept {
  return this->rank(rank).activity;
}

std::byte* shared_segment::inline_area(int rank,
                                       std::uint64_t parity) const noexcept {
  return static_cast<std::byte*>(base_) + areas_offset(ranks())
         + area_bytes * static_cast<std::size_t>(rank)
         + inline_bytes * (parity & 1);
}

std::byte* shared_segment::chunk_area(int rank,
                                      std::uint64_t parity) const noexcept {
  return inline_area(rank, 0) + 2 * inline_bytes + chunk_bytes * (parity & 1);
}

std::byte* shared_segment::result_area(std::uint64_t number) const noexcept {
  return inline_area(ranks(), 0) + chunk_bytes * (number % results);
}

} // namespace troupe::internal
