#include "troupe/runtime/process/spawn_wire.hpp"

#include <cstring>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "troupe/runtime/enum_value.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

std::uint64_t spawn_reader::number() {
  std::uint64_t x = 0;
  if (bytes_.size() < sizeof(x)) {
    ok_ = false;
    bytes_ = {};
    return 0;
  }
  std::memcpy(&x, bytes_.data(), sizeof(x));
  bytes_.remove_prefix(sizeof(x));
  return x;
}

std::string spawn_reader::text() {
  auto size = number();
  if (size > bytes_.size()) {
    ok_ = false;
    bytes_ = {};
    return {};
  }
  std::string x{bytes_.substr(0, size)};
  bytes_.remove_prefix(size);
  return x;
}

std::string encode(const spawn_order& x) {
  spawn_writer out;
  out.put(x.id);
  out.put(std::string_view{x.payload});
  out.put(std::uint64_t{x.hidden.size()});
  for (const auto& name : x.hidden)
    out.put(std::string_view{name});
  out.put(std::uint64_t{x.environment.size()});
  for (const auto& [name, value] : x.environment) {
    out.put(std::string_view{name});
    out.put(std::string_view{value});
  }
  out.put(std::uint64_t{x.cores.size()});
  for (int core : x.cores)
    out.put(static_cast<std::uint64_t>(core));
  out.put(std::uint64_t{x.removed.size()});
  for (const auto& name : x.removed)
    out.put(std::string_view{name});
  out.put(std::uint64_t{x.umask.has_value()});
  out.put(std::uint64_t{x.umask.value_or(0)});
  out.put(std::uint64_t{x.has_folder});
  return out.take();
}

expected<spawn_order> decode_spawn_order(std::string_view bytes) {
  spawn_reader in{bytes};
  spawn_order x;
  x.id = in.number();
  x.payload = in.text();
  for (auto n = in.number(); n > 0 && in.ok(); --n)
    x.hidden.push_back(in.text());
  for (auto n = in.number(); n > 0 && in.ok(); --n) {
    auto name = in.text();
    x.environment.emplace_back(std::move(name), in.text());
  }
  for (auto n = in.number(); n > 0 && in.ok(); --n)
    x.cores.push_back(static_cast<int>(in.number()));
  for (auto n = in.number(); n > 0 && in.ok(); --n)
    x.removed.push_back(in.text());
  auto has_umask = in.number() != 0;
  if (auto mask = static_cast<mode_t>(in.number()); has_umask)
    x.umask = mask;
  x.has_folder = in.number() != 0;
  if (!in.ok())
    return failure(ec::protocol, "the spawner received a truncated request");
  return x;
}

std::string encode(const rank_end& x) {
  spawn_writer out;
  out.put(x.id);
  out.put(static_cast<std::uint64_t>(x.how.how));
  out.put(static_cast<std::uint64_t>(x.how.code));
  out.put(std::string_view{x.how.termination_message});
  return out.take();
}

expected<rank_end> decode_rank_end(std::string_view bytes) {
  spawn_reader in{bytes};
  rank_end x;
  x.id = in.number();
  auto how = enum_value<process_exit::kind>(in.number());
  x.how.code = static_cast<int>(in.number());
  x.how.termination_message = in.text();
  if (!in.ok() || !how)
    return failure(ec::protocol, "a spawner sent an end of an unknown kind");
  x.how.how = *how;
  return x;
}

std::string make_frame(spawn_frame kind, std::string_view body,
                       std::size_t descriptors) {
  spawn_frame_header header{kind, static_cast<std::uint32_t>(descriptors),
                            body.size()};
  std::string bytes{reinterpret_cast<const char*>(&header), sizeof(header)};
  bytes += body;
  return bytes;
}

namespace {

// Room for the limit, for the two outputs and for the folder.
constexpr std::size_t control_size =
  CMSG_SPACE(sizeof(int) * (max_spawn_descriptors + 3));

expected<unique_fd> open_output(const spawn_request& request, int standard) {
  if (!request.log_path.empty())
    return open_own_file(AT_FDCWD, request.log_path.c_str(),
                         O_WRONLY | O_APPEND | O_CREAT, ec::spawn,
                         "cannot open the log " + request.log_path);
  if (request.output)
    return duplicate(request.output.get());
  if (auto own = duplicate(standard))
    return own;
  // The program has closed its own output.
  return unique_fd{::open("/dev/null", O_WRONLY | O_CLOEXEC)};
}

} // namespace

expected<spawn_message> make_start(std::uint64_t id, spawn_request request) {
  if (request.payload.size() > max_spawn_payload)
    return failure(ec::spawn,
                   concat("a rank's payload of ", request.payload.size(),
                          " bytes is over the limit of 64 MiB"));
  if (request.descriptors.size() > max_spawn_descriptors)
    return failure(ec::spawn,
                   concat(request.descriptors.size(),
                          " descriptors for a rank are over the limit of ",
                          max_spawn_descriptors));
  spawn_message result;
  for (int standard : {STDOUT_FILENO, STDERR_FILENO}) {
    TROUPE_TRY(auto output, open_output(request, standard));
    result.descriptors.push_back(std::move(output));
  }
  auto has_folder = static_cast<bool>(request.folder);
  if (has_folder)
    result.descriptors.push_back(std::move(request.folder));
  for (auto& fd : request.descriptors)
    result.descriptors.push_back(std::move(fd));
  result.bytes =
    make_frame(spawn_frame::start,
               encode(spawn_order{
                 id, std::move(request.payload), std::move(request.hidden),
                 std::move(request.environment), std::move(request.cores),
                 std::move(request.removed), request.umask, has_folder}),
               result.descriptors.size());
  if (result.bytes.size() - sizeof(spawn_frame_header) > max_spawn_frame)
    return failure(ec::spawn, "a rank's payload and environment are over the "
                              "limit of 128 MiB");
  return result;
}

ssize_t send_with_descriptors(int socket, std::string_view bytes,
                              const std::vector<unique_fd>& descriptors,
                              int flags) {
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[control_size] = {};
  if (!descriptors.empty()) {
    auto size = sizeof(int) * descriptors.size();
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(size);
    auto* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(size);
    auto* numbers = CMSG_DATA(head);
    for (const auto& fd : descriptors) {
      int number = fd.get();
      std::memcpy(numbers, &number, sizeof(number));
      numbers += sizeof(number);
    }
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | flags);
}

ssize_t receive_with_descriptors(int socket, char* data, std::size_t size,
                                 std::vector<unique_fd>& descriptors, int flags,
                                 bool* dropped) {
  iovec part{data, size};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[control_size];
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  auto n = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | flags);
  if (n <= 0)
    return n;
  if (dropped)
    *dropped = (message.msg_flags & MSG_CTRUNC) != 0;
  for (auto* head = CMSG_FIRSTHDR(&message); head;
       head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
      continue;
    auto count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(head) + i * sizeof(int), sizeof(number));
      descriptors.emplace_back(number);
    }
  }
  return n;
}

ssize_t frame_reader::receive(int socket) {
  char bytes[16384];
  std::vector<unique_fd> descriptors;
  bool dropped = false;
  auto n = receive_with_descriptors(socket, bytes, sizeof(bytes), descriptors,
                                    MSG_DONTWAIT, &dropped);
  if (n <= 0)
    return n;
  // One call receives the descriptors of one frame.
  if (dropped && descriptors.empty())
    descriptors.emplace_back();
  for (auto& x : descriptors)
    descriptors_.push_back(std::move(x));
  bytes_.append(bytes, static_cast<std::size_t>(n));
  return n;
}

expected<std::optional<received_frame>> frame_reader::next() {
  spawn_frame_header header;
  if (bytes_.size() < sizeof(header))
    return std::nullopt;
  std::memcpy(&header, bytes_.data(), sizeof(header));
  if (header.size > max_spawn_frame)
    return failure(ec::protocol, "a spawner sent malformed data");
  if (bytes_.size() - sizeof(header) < header.size)
    return std::nullopt;
  received_frame result{
    header.kind, bytes_.substr(sizeof(header), header.size), {}};
  if (header.descriptors > 0 && !descriptors_.empty()) {
    result.descriptor = std::move(descriptors_.front());
    descriptors_.pop_front();
  }
  bytes_.erase(0, sizeof(header) + header.size);
  return result;
}

void frame_reader::clear() noexcept {
  bytes_.clear();
  descriptors_.clear();
}

} // namespace troupe::internal
