#include "troupe/runtime/process/process_vitals.hpp"

#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

/// Most processes of a rank that are inspected, itself included. What the
/// others do is unknown, so that a rank with more counts as busy.
constexpr std::size_t max_processes = 64;

/// Most descriptors of a rank and its descendants that are inspected.
constexpr std::size_t max_descriptors = 4096;

/// How old the numbers of sockets may be: one request covers all ranks.
constexpr auto traffic_age = std::chrono::milliseconds{100};

/// Bytes that have gone over TCP sockets, by inode.
using tcp_traffic = std::unordered_map<std::uint64_t, std::uint64_t>;

std::string proc_path(pid_t pid) {
  return concat("/proc/", pid);
}

/// The first bytes of a file of /proc; empty if it cannot be read.
std::string text_of(const std::string& path) {
  unique_fd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  std::string text(4096, '\0');
  auto n = file.get() < 0 ? 0 : ::read(file.get(), text.data(), text.size());
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return text;
}

/// The number behind *name* in *text*; 0 if it is not there.
std::uint64_t number_behind(std::string_view text, std::string_view name) {
  auto begin = text.find(name);
  if (begin == std::string_view::npos)
    return 0;
  begin = text.find_first_of("0123456789", begin + name.size());
  std::uint64_t result = 0;
  if (begin != std::string_view::npos)
    std::from_chars(text.data() + begin, text.data() + text.size(), result);
  return result;
}

std::chrono::nanoseconds cpu_time_of(pid_t pid) {
  clockid_t clock{};
  timespec time{};
  if (::clock_getcpuclockid(pid, &clock) != 0
      || ::clock_gettime(clock, &time) != 0)
    return {};
  return std::chrono::seconds{time.tv_sec}
         + std::chrono::nanoseconds{time.tv_nsec};
}

std::uint64_t io_of(pid_t pid) {
  auto text = text_of(proc_path(pid) + "/io");
  return number_behind(text, "rchar:") + number_behind(text, "wchar:");
}

/// Asks the kernel for the open TCP connections of *family*.
bool ask_for_sockets(int link, std::uint8_t family) {
  struct {
    nlmsghdr header;
    inet_diag_req_v2 body;
  } request{};
  request.header.nlmsg_len = sizeof(request);
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.body.sdiag_family = family;
  request.body.sdiag_protocol = IPPROTO_TCP;
  request.body.idiag_ext = 1 << (INET_DIAG_INFO - 1);
  // Established, half closed by this side (two states), or by the other.
  request.body.idiag_states = 1U << 1 | 1U << 4 | 1U << 5 | 1U << 8;
  return ::send(link, &request, sizeof(request), 0) == sizeof(request);
}

/// Adds the socket that *message* of *size* bytes describes.
void add_socket(const char* message, std::size_t size, tcp_traffic& result) {
  inet_diag_msg socket{};
  std::memcpy(&socket, message, sizeof(socket));
  auto at = NLMSG_ALIGN(sizeof(socket));
  for (rtattr part{}; at + sizeof(part) <= size;
       at += RTA_ALIGN(std::size_t{part.rta_len})) {
    std::memcpy(&part, message + at, sizeof(part));
    if (part.rta_len < sizeof(part) || at + part.rta_len > size)
      return;
    tcp_info info{};
    auto length = std::min(part.rta_len - sizeof(part), sizeof(info));
    if (part.rta_type != INET_DIAG_INFO)
      continue;
    std::memcpy(&info, message + at + sizeof(part), length);
    result[socket.idiag_inode] =
      info.tcpi_bytes_acked + info.tcpi_bytes_received;
  }
}

/// Adds what the kernel answers on *link*. It never blocks: it writes each part
/// of its answer when the previous one has been read.
void add_sockets(int link, tcp_traffic& result) {
  std::vector<char> buffer(1 << 16);
  for (;;) {
    auto n = ::recv(link, buffer.data(), buffer.size(), MSG_DONTWAIT);
    auto end = n > 0 ? static_cast<std::size_t>(n) : 0;
    nlmsghdr header{};
    if (end < sizeof(header))
      return;
    for (std::size_t at = 0; at + sizeof(header) <= end;
         at += NLMSG_ALIGN(std::size_t{header.nlmsg_len})) {
      std::memcpy(&header, buffer.data() + at, sizeof(header));
      auto begin = at + NLMSG_HDRLEN;
      if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY
          || header.nlmsg_len < NLMSG_HDRLEN + sizeof(inet_diag_msg)
          || at + header.nlmsg_len > end)
        return; // the end, or an error
      add_socket(buffer.data() + begin, header.nlmsg_len - NLMSG_HDRLEN,
                 result);
    }
  }
}

/// The TCP connections of this network namespace; none if the kernel does not
/// list them.
tcp_traffic read_tcp_traffic() {
  tcp_traffic result;
  for (std::uint8_t family : {AF_INET, AF_INET6}) {
    unique_fd link{
      ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG)};
    if (link && ask_for_sockets(link.get(), family))
      add_sockets(link.get(), result);
  }
  return result;
}

/// The same, at most `traffic_age` old.
std::shared_ptr<const tcp_traffic> recent_tcp_traffic() {
  static std::mutex mutex;
  static std::shared_ptr<const tcp_traffic> last;
  static std::chrono::steady_clock::time_point since;
  std::lock_guard guard{mutex};
  auto now = std::chrono::steady_clock::now();
  if (!last || now - since >= traffic_age) {
    last = std::make_shared<const tcp_traffic>(read_tcp_traffic());
    since = now;
  }
  return last;
}

/// Adds the inodes of the sockets that process *pid* has open, at most *budget*
/// descriptors.
void add_sockets_of(pid_t pid, std::set<std::uint64_t>& result,
                    std::size_t& budget) {
  constexpr std::string_view kind = "socket:[";
  boost::system::error_code failed;
  for (fs::directory_iterator i{proc_path(pid) + "/fd", failed}, end;
       !failed && i != end && budget > 0; i.increment(failed), --budget) {
    char target[64];
    auto n = ::readlink(i->path().c_str(), target, sizeof(target));
    std::string_view text{target, n > 0 ? static_cast<std::size_t>(n) : 0};
    std::uint64_t inode = 0;
    if (text.starts_with(kind)
        && std::from_chars(target + kind.size(), target + text.size(), inode).ec
             == std::errc{})
      result.insert(inode);
  }
}

/// Bytes over TCP connections that are open in *processes*; nothing if they
/// have too many descriptors.
std::optional<std::uint64_t> tcp_bytes_of(const std::vector<pid_t>& processes) {
  auto traffic = recent_tcp_traffic();
  std::set<std::uint64_t> sockets; // Parents and children share them.
  auto budget = traffic->empty() ? 0 : max_descriptors;
  for (auto pid : processes)
    add_sockets_of(pid, sockets, budget);
  if (budget == 0 && !traffic->empty())
    return std::nullopt;
  std::uint64_t result = 0;
  for (auto inode : sockets)
    if (auto i = traffic->find(inode); i != traffic->end())
      result += i->second;
  return result;
}

std::vector<std::string> tasks_of(pid_t pid) {
  std::vector<std::string> result;
  boost::system::error_code failed;
  for (fs::directory_iterator i{proc_path(pid) + "/task", failed}, end;
       !failed && i != end; i.increment(failed))
    result.push_back(i->path().string());
  return result;
}

/// The first fields about a process or thread, see proc(5).
struct task_stat {
  std::string name;
  char state = '?'; ///< Of one that has ended.
};

task_stat stat_of(const std::string& task) {
  auto text = text_of(task + "/stat");
  auto begin = text.find('(');
  auto end = text.rfind(')');
  if (end == std::string::npos || end + 2 >= text.size())
    return {};
  return {text.substr(begin + 1, end - begin - 1), text[end + 2]};
}

/// CPU time of a thread; 0 if the kernel does not report it.
std::chrono::nanoseconds thread_time_of(const std::string& task) {
  return std::chrono::nanoseconds{
    number_behind(text_of(task + "/schedstat"), "")};
}

/// System calls that wait only for a file system. The kernel counts no bytes
/// of, for example, a close on a network share before it returns.
constexpr auto file_calls = std::to_array<long>({
  SYS_fsync,           SYS_fdatasync, SYS_sync,       SYS_syncfs,
  SYS_sync_file_range, SYS_msync,     SYS_close,      SYS_renameat2,
  SYS_unlinkat,        SYS_linkat,    SYS_symlinkat,  SYS_mkdirat,
  SYS_newfstatat,      SYS_fstat,     SYS_statx,      SYS_truncate,
  SYS_ftruncate,       SYS_fallocate, SYS_fchmodat,   SYS_fchownat,
  SYS_utimensat,       SYS_faccessat, SYS_getdents64, SYS_statfs,
  SYS_copy_file_range,
#ifdef SYS_renameat
  SYS_renameat,
#endif
#ifdef SYS_rename // Architectures older than the calls above have both.
  SYS_rename,          SYS_unlink,    SYS_link,       SYS_symlink,
  SYS_mkdir,           SYS_rmdir,     SYS_stat,       SYS_lstat,
  SYS_access,          SYS_readlink,  SYS_chmod,      SYS_chown,
#endif
});

/// Whether the thread *task*, which sleeps, waits for a file system; also true
/// if that is unknown. The kernel has a separate state for waiting for a disk,
/// but not for the server of a FUSE file system or of some network shares: that
/// looks like waiting for a message.
bool waits_for_files(const std::string& task) {
  auto place = text_of(task + "/wchan");  // "0": none, or not for us to see
  auto text = text_of(task + "/syscall"); // "running", or number and arguments
  long call = -1;
  std::from_chars(text.data(), text.data() + text.size(), call);
  if (call == SYS_flock || call == SYS_fcntl)
    return false; // It waits for another process.
  if (std::ranges::count(file_calls, call) > 0)
    return true;
  // Any other call on a file of FUSE, such as a read; its server waits in
  // functions of the device.
  if (place == "request_wait_answer"
      || (place.starts_with("fuse_") && !place.starts_with("fuse_dev_")))
    return true;
  return text.empty() && (place.empty() || place == "0");
}

/// Adds the children of the thread *task*. Returns whether there was room for
/// all of them.
bool add_children(const std::string& task, std::vector<pid_t>& result) {
  auto text = text_of(task + "/children");
  const char* at = text.data();
  const char* end = at + text.size();
  for (pid_t pid = 0; at < end; ++at) {
    auto read = std::from_chars(at, end, pid);
    if (read.ec != std::errc{})
      return true;
    if (result.size() >= max_processes)
      return false;
    result.push_back(pid);
    at = read.ptr;
  }
  return true;
}

} // namespace

bool is_stopped(pid_t pid) {
  return stat_of(proc_path(pid)).state == 'T';
}

std::optional<process_vitals> vitals_of(pid_t pid) {
  std::vector<pid_t> processes{pid};
  process_vitals result;
  for (std::size_t i = 0; i < processes.size(); ++i) {
    auto tasks = tasks_of(processes[i]);
    if (tasks.empty() && i == 0)
      return std::nullopt;
    result.cpu += cpu_time_of(processes[i]);
    result.io_bytes += io_of(processes[i]);
    result.wake_ups +=
      number_behind(text_of(proc_path(processes[i]) + "/status"),
                    "\nvoluntary_ctxt_switches:");
    std::size_t stopped = 0;
    for (auto& task : tasks) {
      auto [name, state] = stat_of(task);
      stopped += state == 'T' ? 1 : 0;
      if (name == polling_thread)
        result.cpu -= thread_time_of(task);
      else
        result.busy = result.busy || state == 'R' || state == 'D'
                      || state == 't'
                      || (state == 'S' && waits_for_files(task));
      result.busy |= !add_children(task, processes);
    }
    if (i == 0)
      result.stopped = stopped == tasks.size();
  }
  auto sent = tcp_bytes_of(processes);
  result.io_bytes += sent.value_or(0);
  result.busy |= !sent; // Unknown.
  return result;
}

} // namespace troupe::internal
