#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/process_exit.hpp"
#include "troupe/runtime/process/spawner.hpp"

namespace troupe::internal {

/// A frame between a client and its spawner, both the same program on the same
/// host: a header, then `size` bytes. The descriptors are attached to the
/// header's first byte.
enum class spawn_frame : std::uint32_t {
  hello,   ///< From the spawner, once: it is ready.
  start,   ///< To the spawner: a `spawn_order`.
  signal,  ///< To the spawner: id, signal.
  started, ///< From the spawner: id, pid; with a pidfd of the process.
  refused, ///< From the spawner: id, why.
  ended,   ///< From the spawner: a `rank_end`.
};

struct spawn_frame_header {
  spawn_frame kind = spawn_frame::hello;
  std::uint32_t descriptors = 0;
  std::uint64_t size = 0;
};

/// The limits of `spawn_request`. The kernel passes at most 253 descriptors in
/// one message.
inline constexpr std::size_t max_spawn_payload = std::size_t{64} << 20;
inline constexpr std::size_t max_spawn_descriptors = 200;

/// Most bytes after a header: a payload, and the rest of a request. A larger
/// size means that the bytes came from another sender.
inline constexpr std::size_t max_spawn_frame = 2 * max_spawn_payload;

/// A `spawn_request` on the wire; its descriptors are stdout, stderr, the
/// current folder if it has one, and then those of the request.
struct spawn_order {
  std::uint64_t id = 0;
  std::string payload;
  std::vector<std::string> hidden;
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<int> cores;
  std::vector<std::string> removed;
  std::optional<mode_t> umask;
  bool has_folder = false;
};

/// Writes values one after another.
class spawn_writer {
public:
  void put(std::uint64_t x) {
    bytes_.append(reinterpret_cast<const char*>(&x), sizeof(x));
  }

  void put(std::string_view x) {
    put(std::uint64_t{x.size()});
    bytes_ += x;
  }

  std::string take() { return std::move(bytes_); }

private:
  std::string bytes_;
};

/// Reads values in the order in which they were written; after invalid bytes
/// everything is zero or empty and `ok()` is false.
class spawn_reader {
public:
  explicit spawn_reader(std::string_view bytes) : bytes_{bytes} {}

  std::uint64_t number();
  std::string text();

  bool ok() const noexcept { return ok_; }

private:
  std::string_view bytes_;
  bool ok_ = true;
};

std::string encode(const spawn_order& x);
expected<spawn_order> decode_spawn_order(std::string_view bytes);

/// Rank process *id* has ended.
struct rank_end {
  std::uint64_t id = 0;
  process_exit how;
};

std::string encode(const rank_end& x);
expected<rank_end> decode_rank_end(std::string_view bytes);

/// *body* with its header in front.
std::string make_frame(spawn_frame kind, std::string_view body,
                       std::size_t descriptors = 0);

/// A frame and the descriptors that go with its first byte.
struct spawn_message {
  std::string bytes;
  std::vector<unique_fd> descriptors;
};

/// The frame that starts *request* under the number *id*, with the outputs of
/// the process opened. `ec::spawn` for a request over one of the limits.
expected<spawn_message> make_start(std::uint64_t id, spawn_request request);

/// Sends bytes, with the descriptors attached to the first. Returns the number
/// of bytes sent, or -1 with errno. *flags* are those of `sendmsg`.
ssize_t send_with_descriptors(int socket, std::string_view bytes,
                              const std::vector<unique_fd>& descriptors,
                              int flags = 0);

/// Receives at most *size* bytes and appends the descriptors that came with
/// them; 0 at the end, -1 with errno. The kernel drops descriptors for which
/// this process has no room and sets *dropped*.
ssize_t receive_with_descriptors(int socket, char* data, std::size_t size,
                                 std::vector<unique_fd>& descriptors,
                                 int flags = 0, bool* dropped = nullptr);

/// A frame that a spawner sent.
struct received_frame {
  spawn_frame kind = spawn_frame::hello;
  std::string body;
  unique_fd descriptor; ///< Empty: it has none, or there was no room for it.
};

/// Cuts what a spawner sends into frames, which have at most one descriptor
/// each.
class frame_reader {
public:
  /// Receives what has arrived, without waiting; 0 at the end, -1 with errno.
  ssize_t receive(int socket);

  /// Takes the next frame, if it has arrived whole; `ec::protocol` if the bytes
  /// came from another sender.
  expected<std::optional<received_frame>> next();

  /// Forgets what has arrived. Needs no memory.
  void clear() noexcept;

private:
  std::string bytes_;
  std::deque<unique_fd> descriptors_; ///< Empty ones were dropped.
};

} // namespace troupe::internal
