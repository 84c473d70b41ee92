#include "troupe/runtime/process/process_vitals.hpp"

#include <fcntl.h>
#include <linux/fuse.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <semaphore>
#include <thread>

#include <gtest/gtest.h>

#include "tests/support/sanitized.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/runtime/process/started_rank.hpp"

namespace troupe::internal::test {
namespace {

using namespace std::chrono_literals;

/// Uses CPU time of the calling process, or thread.
void burn(std::chrono::nanoseconds time,
          clockid_t clock = CLOCK_PROCESS_CPUTIME_ID) {
  timespec now{};
  do {
    ::clock_gettime(clock, &now);
  } while (std::chrono::seconds{now.tv_sec}
             + std::chrono::nanoseconds{now.tv_nsec}
           < time);
}

/// A child that runs *body* and then waits until the test releases it.
class waiting_child {
public:
  template <class Body>
  explicit waiting_child(Body body) {
    auto ready = make_pipe();
    auto let_go = make_pipe();
    pid = ::fork();
    if (pid == 0) {
      let_go.writer.reset();
      body();
      ready.writer.reset();
      char byte = 0;
      while (::read(let_go.reader.get(), &byte, 1) > 0)
        continue;
      ::_exit(0);
    }
    ready.writer.reset();
    release_ = std::move(let_go.writer);
    read_all(ready.reader.get()); // until *body* has returned
  }

  ~waiting_child() {
    release_.reset();
    ::kill(pid, SIGCONT);
    ::waitpid(pid, nullptr, 0);
  }

  /// Its vitals once it waits.
  process_vitals vitals() const {
    for (;;) {
      auto waits = has_left_its_core();
      if (auto x = vitals_of(pid); !x || (waits && !x->busy))
        return x.value_or(process_vitals{});
    }
  }

  void give(const std::string& bytes) const {
    EXPECT_EQ(::write(release_.get(), bytes.data(), bytes.size()),
              static_cast<ssize_t>(bytes.size()));
  }

  pid_t pid = -1;

private:
  // A process counts as asleep a moment before it is off its core, and its CPU
  // time grows until then. Where this cannot be asked, that has to do.
  bool has_left_its_core() const {
    std::ifstream file{"/proc/" + std::to_string(pid) + "/syscall"};
    std::string number; // "running", or of the system call that it sleeps in
    return !(file >> number) || number == std::to_string(SYS_read);
  }

  unique_fd release_;
};

TEST(process_vitals_test, a_process_that_only_waits_uses_nothing) {
  waiting_child child{[] {}};
  auto first = child.vitals();
  auto second = child.vitals();
  EXPECT_EQ(second.cpu, first.cpu);
  EXPECT_EQ(second.io_bytes, first.io_bytes);
  EXPECT_FALSE(second.stopped);
}

TEST(process_vitals_test, sees_the_cpu_time_of_a_process) {
  waiting_child child{[] { burn(30ms); }};
  EXPECT_GE(child.vitals().cpu, 30ms);
}

TEST(process_vitals_test, sees_what_a_process_reads) {
  waiting_child child{[] {}};
  auto before = child.vitals().io_bytes;
  child.give(std::string(1000, 'x'));
  while (child.vitals().io_bytes < before + 1000)
    continue;
}

TEST(process_vitals_test, sees_that_a_process_receives_over_a_socket) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  unique_fd ours{ends[0]};
  unique_fd theirs{ends[1]};
  auto pid = ::fork();
  if (pid == 0) {
    ours.reset();
    char byte = 0;
    while (::recv(theirs.get(), &byte, 1, 0) > 0)
      continue;
    ::_exit(0);
  }
  theirs.reset();
  for (int i = 0; i < 10; ++i) {
    auto before = vitals_of(pid)->wake_ups;
    ASSERT_EQ(::send(ours.get(), "x", 1, MSG_NOSIGNAL), 1);
    while (vitals_of(pid)->wake_ups == before)
      continue;
  }
  ours.reset();
  ::waitpid(pid, nullptr, 0);
}

/// Both ends of a TCP connection.
std::pair<unique_fd, unique_fd> connection(int family) {
  sockaddr_storage address{};
  address.ss_family = static_cast<sa_family_t>(family);
  if (family == AF_INET)
    reinterpret_cast<sockaddr_in&>(address).sin_addr.s_addr =
      htonl(INADDR_LOOPBACK);
  else
    reinterpret_cast<sockaddr_in6&>(address).sin6_addr = in6addr_loopback;
  auto* place = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof(address);
  unique_fd listener{::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  unique_fd caller{::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (::bind(listener.get(), place, size) != 0
      || ::listen(listener.get(), 1) != 0
      || ::getsockname(listener.get(), place, &size) != 0
      || ::connect(caller.get(), place, size) != 0)
    return {};
  return {std::move(caller),
          unique_fd{::accept(listener.get(), nullptr, nullptr)}};
}

TEST(process_vitals_test, sees_what_any_thread_sends_and_receives_over_tcp) {
  TROUPE_SKIP_FORKS_UNDER_TSAN();
  for (int family : {AF_INET, AF_INET6}) {
    auto [ours, theirs] = connection(family);
    if (!theirs) {
      ASSERT_EQ(family, AF_INET6) << "this host has no loopback";
      continue;
    }
    auto pid = ::fork();
    if (pid == 0) {
      ours.reset();
      std::thread{[fd = theirs.get()] {
        char byte = 0;
        while (::recv(fd, &byte, 1, 0) > 0)
          ::send(fd, &byte, 1, MSG_NOSIGNAL);
      }}.join();
      ::_exit(0);
    }
    theirs.reset();
    for (int i = 0; i < 3; ++i) {
      auto before = vitals_of(pid)->io_bytes;
      ASSERT_EQ(::send(ours.get(), "x", 1, MSG_NOSIGNAL), 1);
      char answer = 0;
      ASSERT_EQ(::recv(ours.get(), &answer, 1, 0), 1);
      auto end = std::chrono::steady_clock::now() + 20s;
      while (vitals_of(pid)->io_bytes < before + 2)
        if (std::chrono::steady_clock::now() > end) {
          ::kill(pid, SIGKILL);
          ::waitpid(pid, nullptr, 0);
          GTEST_SKIP() << "this kernel does not list TCP connections";
        }
    }
    ours.reset();
    ::waitpid(pid, nullptr, 0);
  }
}

TEST(process_vitals_test, counts_the_children_of_a_process) {
  waiting_child child{[] {
    auto burnt = make_pipe();
    if (::fork() == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      burn(30ms);
      ::close_range(0, ~0U, 0); // the test waits for the end of its pipes
      for (;;)
        ::pause();
    }
    burnt.writer.reset();
    read_all(burnt.reader.get());
  }};
  EXPECT_GE(child.vitals().cpu, 30ms);
  EXPECT_EQ(vitals_of(child.pid)->stopped, false);
}

TEST(process_vitals_test, a_polling_thread_does_not_count_as_activity) {
  TROUPE_SKIP_FORKS_UNDER_TSAN();
  auto child_with = [](const char* name) {
    return waiting_child{[name] {
      std::binary_semaphore burnt{0};
      std::thread{[&burnt, name] {
        ::pthread_setname_np(::pthread_self(), name);
        burn(200ms, CLOCK_THREAD_CPUTIME_ID);
        burnt.release();
        for (;;)
          ::pause();
      }}.detach();
      burnt.acquire();
    }};
  };
  EXPECT_GE(child_with("uploads").vitals().cpu, 200ms);
  EXPECT_LT(child_with(polling_thread).vitals().cpu, 100ms);
}

TEST(process_vitals_test, recognizes_a_stopped_process) {
  waiting_child child{[] {}};
  EXPECT_FALSE(is_stopped(child.pid));
  ASSERT_EQ(::kill(child.pid, SIGSTOP), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child.pid, &status, WUNTRACED), child.pid);
  EXPECT_TRUE(WIFSTOPPED(status));
  EXPECT_TRUE(vitals_of(child.pid)->stopped);
  EXPECT_TRUE(is_stopped(child.pid));
}

/// The server of a FUSE file system whose root is a file, and which answers a
/// request for a sync only when asked to.
class slow_server {
public:
  explicit slow_server(int device) : device_(device) {}

  /// Serves until someone asks for a sync; false if the device is closed.
  bool serve_until_sync() {
    for (;;) {
      auto n = ::read(device_, bytes_.data(), bytes_.size());
      if (n < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN))
        continue;
      if (n < static_cast<ssize_t>(sizeof(request_)))
        return false;
      std::memcpy(&request_, bytes_.data(), sizeof(request_));
      if (request_.opcode == FUSE_FSYNC)
        return true;
      serve();
    }
  }

  /// Ends the call that asked last.
  void answer() { reply(0, "", 0); }

private:
  void serve() {
    if (request_.opcode == FUSE_INIT) {
      fuse_init_out x{};
      x.major = FUSE_KERNEL_VERSION;
      x.minor = 31;
      x.max_write = 4096;
      reply(0, &x, sizeof(x));
    } else if (request_.opcode == FUSE_GETATTR) {
      fuse_attr_out x{};
      x.attr.ino = 1;
      x.attr.mode = S_IFREG | 0600;
      x.attr.nlink = 1;
      reply(0, &x, sizeof(x));
    } else if (request_.opcode == FUSE_OPEN) {
      fuse_open_out x{};
      reply(0, &x, sizeof(x));
    } else if (request_.opcode != FUSE_FORGET) {
      reply(-ENOSYS, "", 0);
    }
  }

  void reply(int code, const void* data, std::size_t size) {
    fuse_out_header header{};
    header.len = static_cast<std::uint32_t>(sizeof(header) + size);
    header.error = code;
    header.unique = request_.unique;
    std::string text(reinterpret_cast<char*>(&header), sizeof(header));
    text.append(static_cast<const char*>(data), size);
    (void) !::write(device_, text.data(), text.size());
  }

  int device_;
  std::string bytes_ = std::string(1 << 17, '\0');
  fuse_in_header request_{};
};

/// Mounts *device* over the file *path*, for this process alone.
bool mount_here(int device, const std::string& path) {
  auto options =
    "fd=" + std::to_string(device) + ",rootmode=100000,user_id=0,group_id=0";
  return ::unshare(CLONE_NEWNS) == 0
         && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0
         && ::mount("troupe", path.c_str(), "fuse", MS_NOSUID | MS_NODEV,
                    options.c_str())
              == 0;
}

char state_letter(pid_t pid) {
  std::ifstream file{"/proc/" + std::to_string(pid) + "/stat"};
  std::string line;
  std::getline(file, line);
  auto end = line.rfind(')');
  return end == std::string::npos ? '?' : line[end + 2];
}

TEST(process_vitals_test, a_process_whose_file_is_on_its_way_is_busy) {
  unique_fd device{::open("/dev/fuse", O_RDWR | O_CLOEXEC)};
  if (!device)
    GTEST_SKIP() << "no file system of FUSE can be made here";
  temporary_folder folder;
  auto path = (folder.path() / "file").string();
  std::ofstream{path} << "beneath";
  auto mounted = make_pipe();
  auto pid = ::fork();
  if (pid == 0) {
    if (!mount_here(device.get(), path))
      ::_exit(1);
    device.reset();
    (void) !::write(mounted.writer.get(), "yes\n", 4);
    unique_fd file{::open(path.c_str(), O_WRONLY | O_CLOEXEC)};
    ::_exit(file && ::fsync(file.get()) == 0 ? 0 : 2);
  }
  mounted.writer.reset();
  if (read_line(mounted.reader.get()).empty()) {
    ::waitpid(pid, nullptr, 0);
    GTEST_SKIP() << "this process may not mount anything";
  }
  slow_server server{device.get()};
  EXPECT_TRUE(server.serve_until_sync());
  // The kernel waits as for a message, not as for a disk.
  while (state_letter(pid) == 'R')
    continue;
  EXPECT_TRUE(vitals_of(pid)->busy);
  server.answer();
  device.reset(); // Without a server the rest of the file's calls fail.
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

/// A process with *n* children, all of which a signal has stopped.
waiting_child parent_of(int n) {
  return waiting_child{[n] {
    for (int i = 0; i < n; ++i) {
      auto pid = ::fork();
      if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        ::close_range(0, ~0U, 0); // the test waits for the end of its pipes
        ::raise(SIGSTOP);
        ::_exit(0);
      }
      ::waitpid(pid, nullptr, WUNTRACED);
    }
  }};
}

TEST(process_vitals_test, a_process_with_too_many_children_to_look_at_is_busy) {
  auto few = parent_of(63);
  EXPECT_FALSE(few.vitals().busy);
  auto many = parent_of(64);
  while (state_letter(many.pid) == 'R')
    continue;
  EXPECT_TRUE(vitals_of(many.pid)->busy);
}

TEST(process_vitals_test, a_process_that_runs_is_busy) {
  EXPECT_TRUE(vitals_of(::getpid())->busy);
}

TEST(process_vitals_test, a_process_that_has_ended_has_none) {
  auto pid = ::fork();
  if (pid == 0)
    ::_exit(0);
  ::waitpid(pid, nullptr, 0);
  EXPECT_FALSE(vitals_of(pid));
  EXPECT_FALSE(is_stopped(pid));
}

} // namespace
} // namespace troupe::internal::test
