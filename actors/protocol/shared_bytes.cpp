#include "troupe/actors/protocol/shared_bytes.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe {

using namespace internal;

namespace internal {

namespace {

/// Less is sent with the message: to map memory costs more.
constexpr std::size_t least_shared = 64 * 1024;

/// Most blocks that may keep a descriptor; others get one while they are sent,
/// or travel with the message: a process may have 1024 in all.
constexpr int most_kept = 128;
constexpr int most_descriptors = 256;

std::atomic<int> descriptors = 0;

} // namespace

/// A place among those that *limit* allows, until it is destroyed.
class descriptor_place {
public:
  descriptor_place() noexcept = default;
  explicit descriptor_place(int limit) noexcept
    : is_taken_(++descriptors <= limit) {
    if (!is_taken_)
      --descriptors;
  }
  ~descriptor_place() {
    if (is_taken_)
      --descriptors;
  }
  descriptor_place(descriptor_place&& x) noexcept
    : is_taken_(std::exchange(x.is_taken_, false)) {}
  descriptor_place& operator=(descriptor_place&& x) noexcept {
    std::swap(is_taken_, x.is_taken_);
    return *this;
  }

  explicit operator bool() const noexcept { return is_taken_; }

private:
  bool is_taken_ = false;
};

/// Memory that another process can map, and its place.
struct counted_memory {
  descriptor_place place;
  unique_fd file;
};

namespace {

unique_fd memory_with(std::span<const std::byte> bytes) {
  unique_fd memory{::memfd_create("troupe-message", MFD_CLOEXEC)};
  while (memory.get() >= 0 && !bytes.empty()) {
    auto size = ::write(memory.get(), bytes.data(), bytes.size());
    if (size <= 0)
      return {};
    bytes = bytes.subspan(static_cast<std::size_t>(size));
  }
  return memory;
}

/// Nothing if there is no room.
counted_memory counted_memory_with(std::span<const std::byte> bytes,
                                   int limit) {
  counted_memory result{descriptor_place{limit}, {}};
  if (result.place)
    result.file = memory_with(bytes);
  if (result.file.get() < 0)
    return {};
  return result;
}

} // namespace

/// The memory of `shared_bytes`: of this process alone, or such that others can
/// map it.
class bytes_block {
public:
  explicit bytes_block(std::span<const std::byte> bytes) {
    if (bytes.size() >= least_shared)
      memory_ = counted_memory_with(bytes, most_kept);
    if (map(memory_.file, bytes.size(), 0)) {
      keeps_ = true;
      return;
    }
    memory_ = {};
    own_.assign(bytes.begin(), bytes.end());
    bytes_ = own_;
  }

  /// What *memory*, which another process has made, holds: *size* bytes.
  bytes_block(const unique_fd& memory, std::size_t size) {
    (void) map(memory, size, MAP_POPULATE);
  }

  ~bytes_block() {
    if (mapped_)
      ::munmap(mapped_, bytes_.size());
  }

  bytes_block(const bytes_block&) = delete;
  bytes_block& operator=(const bytes_block&) = delete;

  std::span<const std::byte> bytes() const noexcept { return bytes_; }

  /// Lets this block have a descriptor for as long as the result exists.
  static shared_hold hold(std::shared_ptr<bytes_block> x) {
    {
      std::lock_guard guard{x->mutex_};
      ++x->holds_;
    }
    auto raw = x.get();
    return {raw, [kept = std::move(x)](void*) { kept->release(); }};
  }

  /// A descriptor of memory with these bytes, while someone holds it; nothing
  /// if no one does, or if there is no room.
  std::optional<int> descriptor() {
    std::lock_guard guard{mutex_};
    if (holds_ == 0)
      return std::nullopt;
    if (memory_.file.get() < 0)
      memory_ = counted_memory_with(bytes_, most_descriptors);
    if (memory_.file.get() < 0)
      return std::nullopt;
    return memory_.file.get();
  }

private:
  void release() {
    std::lock_guard guard{mutex_};
    if (--holds_ == 0 && !keeps_)
      memory_ = {};
  }

  bool map(const unique_fd& memory, std::size_t size, int flags) {
    struct stat found {};
    if (memory.get() < 0 || ::fstat(memory.get(), &found) != 0
        || found.st_size != static_cast<off_t>(size))
      return false;
    // To populate a private mapping that may be written would copy it all.
    auto address =
      ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE | flags, memory.get(), 0);
    if (address == MAP_FAILED)
      return false;
    // What is written there nevertheless stays in this process.
    (void) ::mprotect(address, size, PROT_READ | PROT_WRITE);
    mapped_ = address;
    bytes_ = {static_cast<const std::byte*>(address), size};
    return true;
  }

  std::vector<std::byte> own_;
  void* mapped_ = nullptr;
  std::span<const std::byte> bytes_;
  std::mutex mutex_;
  counted_memory memory_;
  bool keeps_ = false; // a descriptor, held or not
  std::size_t holds_ = 0;
};

namespace {

thread_local near_scope* scope_here = nullptr;

/// Whether other processes of this user may open what this one has open. One
/// that hides its memory from them (`PR_SET_DUMPABLE`) hides that, too.
bool shows_descriptors() noexcept {
  return ::prctl(PR_GET_DUMPABLE) == 1;
}

} // namespace

near_scope::near_scope(bool is_near, std::vector<shared_hold>* holds) noexcept
  : outer_(std::exchange(scope_here, this)), is_near_(is_near), holds_(holds) {}

near_scope::~near_scope() {
  scope_here = outer_;
}

near_scope* near_scope::current() noexcept {
  return scope_here;
}

} // namespace internal

shared_bytes shared_bytes::copy_of(std::span<const std::byte> bytes) {
  shared_bytes result;
  if (!bytes.empty())
    result.block_ = std::make_shared<bytes_block>(bytes);
  return result;
}

const std::byte* shared_bytes::data() const noexcept {
  return block_ ? block_->bytes().data() : nullptr;
}

std::size_t shared_bytes::size() const noexcept {
  return block_ ? block_->bytes().size() : 0;
}

bool shared_bytes::save(caf::binary_serializer& sink) const {
  auto scope = near_scope::current();
  auto is_near =
    scope && scope->is_near() && size() >= least_shared && shows_descriptors();
  if (is_near && scope->holds())
    scope->holds()->push_back(bytes_block::hold(block_));
  auto memory = is_near ? block_->descriptor() : std::nullopt;
  if (!sink.value(static_cast<std::uint64_t>(size()))
      || !sink.value(memory.has_value()))
    return false;
  if (!memory)
    return put_bytes(sink, bytes());
  struct stat found {};
  return ::fstat(*memory, &found) == 0
         && sink.value(static_cast<std::int32_t>(::getpid()))
         && sink.value(static_cast<std::int32_t>(*memory))
         && sink.value(static_cast<std::uint64_t>(found.st_dev))
         && sink.value(static_cast<std::uint64_t>(found.st_ino));
}

bool shared_bytes::load(caf::binary_deserializer& source) {
  std::uint64_t size = 0;
  auto is_shared = false;
  block_ = nullptr;
  if (!source.value(size) || !source.value(is_shared))
    return false;
  if (is_shared) {
    std::int32_t pid = 0, number = 0;
    std::uint64_t device = 0, inode = 0;
    if (!source.value(pid) || !source.value(number) || !source.value(device)
        || !source.value(inode))
      return false;
    auto path = concat("/proc/", pid, "/fd/", number);
    unique_fd memory{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
    struct stat found {};
    // Another file may have the number by now.
    if (memory.get() < 0 || ::fstat(memory.get(), &found) != 0
        || found.st_dev != device || found.st_ino != inode)
      return false;
    auto block = std::make_shared<bytes_block>(memory, size);
    if (block->bytes().empty())
      return false;
    block_ = std::move(block);
    return true;
  }
  auto rest = rest_of(source);
  if (size > rest.size())
    return false;
  *this = copy_of(rest.first(size));
  source.skip(size);
  return true;
}

} // namespace troupe
