#include "troupe/actors/protocol/shared_bytes.hpp"

#include <fcntl.h>
#include <sys/mman.h>
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

/// Most blocks that may keep a descriptor; others get one while they are sent.
constexpr int most_descriptors = 128;

std::atomic<int> descriptors = 0;

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

} // namespace

/// The memory of `shared_bytes`: of this process alone, or such that others can
/// map it.
class bytes_block {
public:
  explicit bytes_block(std::span<const std::byte> bytes) {
    if (bytes.size() >= least_shared && ++descriptors <= most_descriptors)
      memory_ = memory_with(bytes);
    if (map(memory_, bytes.size(), 0)) {
      counted_ = true;
      return;
    }
    memory_.reset();
    if (bytes.size() >= least_shared)
      --descriptors;
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
    if (counted_)
      --descriptors;
  }

  bytes_block(const bytes_block&) = delete;
  bytes_block& operator=(const bytes_block&) = delete;

  std::span<const std::byte> bytes() const noexcept { return bytes_; }

  /// A descriptor of memory with these bytes, while this object exists; nothing
  /// if there is no room.
  std::optional<int> descriptor() {
    std::lock_guard guard{mutex_};
    if (memory_.get() < 0)
      memory_ = memory_with(bytes_);
    return memory_.get() < 0 ? std::nullopt : std::optional{memory_.get()};
  }

private:
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
  unique_fd memory_;
  bool counted_ = false; // its descriptor
};

namespace {

thread_local near_scope* scope_here = nullptr;

} // namespace

near_scope::near_scope(bool is_near) noexcept
  : outer_(std::exchange(scope_here, this)), is_near_(is_near) {}

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
  auto is_near = scope && scope->is_near() && size() >= least_shared;
  auto memory = is_near ? block_->descriptor() : std::nullopt;
  if (!sink.value(static_cast<std::uint64_t>(size()))
      || !sink.value(memory.has_value()))
    return false;
  if (!memory)
    return put_bytes(sink, bytes());
  scope->note_shared();
  return sink.value(static_cast<std::int32_t>(::getpid()))
         && sink.value(static_cast<std::int32_t>(*memory));
}

bool shared_bytes::load(caf::binary_deserializer& source) {
  std::uint64_t size = 0;
  auto is_shared = false;
  block_ = nullptr;
  if (!source.value(size) || !source.value(is_shared))
    return false;
  if (is_shared) {
    std::int32_t pid = 0, number = 0;
    if (!source.value(pid) || !source.value(number))
      return false;
    auto path = concat("/proc/", pid, "/fd/", number);
    unique_fd memory{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
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
