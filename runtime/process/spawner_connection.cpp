#include "troupe/runtime/process/spawner_connection.hpp"

#include <algorithm>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "troupe/runtime/process/pidfd.hpp"
#include "troupe/runtime/process/quiet_thread.hpp"
#include "troupe/runtime/process/spawner.hpp"
#include "troupe/runtime/process/system_failure.hpp"

namespace troupe {
namespace {

// Loading LibTorch from a cold disk takes seconds; a minute is a hang.
constexpr std::chrono::seconds hello_timeout{60};

// How long the spawner may take to end its ranks before it is killed, which
// kills them too.
constexpr int farewell_timeout_ms = 2000;

expected<unique_fd> open_output(const spawn_request& request, int standard) {
  if (!request.log_path.empty()) {
    unique_fd file{
      ::open(request.log_path.c_str(),
             O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600)};
    if (!file)
      return system_failure(ec::spawn,
                            "cannot open the log " + request.log_path);
    return file;
  }
  if (request.output)
    return duplicate(request.output.get());
  if (auto own = duplicate(standard))
    return own;
  // The program has closed its own output.
  return unique_fd{::open("/dev/null", O_WRONLY | O_CLOEXEC)};
}

} // namespace

spawner_connection::spawner_connection(spawner_link link)
  : owner_{::getpid()}, wake_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)},
    link_{std::move(link)}, deadline_{std::chrono::steady_clock::now()
                                      + hello_timeout} {}

spawner_connection::~spawner_connection() {
  {
    std::lock_guard guard{mutex_};
    stopping_ = true;
  }
  wake();
  if (thread_.joinable())
    thread_.join();
  if (!link_.socket)
    return;
  link_.socket.reset();
  bury(link_, farewell_timeout_ms);
}

void spawner_connection::spawn(spawn_request request,
                               spawner_client::started_callback started,
                               spawner_client::ended_callback ended) {
  order x;
  x.request = std::move(request);
  std::uint64_t id = 0;
  {
    std::lock_guard guard{mutex_};
    id = x.id = ++last_id_;
    processes_.emplace(x.id, process{-1, std::move(started), std::move(ended)});
  }
  if (auto ok = push(std::move(x)); !ok)
    refuse(id, ok.error());
}

void spawner_connection::kill(pid_t pid, int signal) {
  order x;
  {
    std::lock_guard guard{mutex_};
    auto found =
      std::find_if(processes_.begin(), processes_.end(),
                   [pid](const auto& x) { return x.second.pid == pid; });
    if (pid <= 0 || signal <= 0 || found == processes_.end())
      return;
    x.id = found->first;
    x.signal = signal;
  }
  (void) push(std::move(x)); // The thread is there: it told of the pid.
}

pid_t spawner_connection::spawner_pid() const {
  std::lock_guard guard{mutex_};
  return link_.socket ? link_.pid : -1;
}

expected<void> spawner_connection::push(order x) {
  std::lock_guard guard{mutex_};
  if (!thread_.joinable()) {
    auto made = start_thread([this] { run(); });
    if (!made)
      return tl::unexpected{std::move(made.error())};
    thread_ = std::move(*made);
  }
  orders_.push_back(std::move(x));
  wake();
  return {};
}

void spawner_connection::wake() noexcept {
  std::uint64_t one = 1;
  // Fails only if it is awake already.
  [[maybe_unused]] auto written = ::write(wake_.get(), &one, sizeof(one));
}

void spawner_connection::run() {
  for (;;) {
    {
      std::lock_guard guard{mutex_};
      if (stopping_)
        return;
    }
    if (!ensure_spawner())
      continue;
    wait();
  }
}

bool spawner_connection::ensure_spawner() {
  {
    std::lock_guard guard{mutex_};
    if (link_.socket || orders_.empty())
      return true;
  }
  auto link = exec_spawner();
  if (!link) {
    fail_everything(link.error());
    return false;
  }
  ready_ = false;
  deadline_ = std::chrono::steady_clock::now() + hello_timeout;
  std::lock_guard guard{mutex_};
  link_ = std::move(*link);
  return true;
}

void spawner_connection::wait() {
  bool sends = sending_.sent < sending_.bytes.size() || next_frame();
  // poll skips a negative descriptor: without a spawner only a wake-up counts.
  pollfd waits[] = {{wake_.get(), POLLIN, 0}, {link_.socket.get(), POLLIN, 0}};
  if (sends)
    waits[1].events |= POLLOUT;
  int timeout_ms = -1;
  if (link_.socket && !ready_) {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline_ - std::chrono::steady_clock::now());
    if (left.count() <= 0)
      return lose_spawner("did not answer within 60 s: main does not get to "
                          "troupe::init");
    timeout_ms = static_cast<int>(left.count()) + 1;
  }
  if (::poll(waits, 2, timeout_ms) <= 0)
    return;
  std::uint64_t count = 0;
  if (waits[0].revents != 0)
    static_cast<void>(::read(wake_.get(), &count, sizeof(count)) > 0);
  if ((waits[1].revents & ~POLLOUT) != 0)
    receive(); // First, so that nothing is sent to a spawner that is gone.
  else if (waits[1].revents != 0)
    send();
}

void spawner_connection::receive() {
  char bytes[16384];
  auto n = ::recv(link_.socket.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
  if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN))
    return lose_spawner({});
  received_.append(bytes, static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  std::string_view rest = received_;
  spawn_frame_header header;
  while (rest.size() >= sizeof(header)) {
    std::memcpy(&header, rest.data(), sizeof(header));
    if (rest.size() - sizeof(header) < header.size)
      break;
    handle(header.kind, rest.substr(sizeof(header), header.size));
    rest.remove_prefix(sizeof(header) + header.size);
  }
  received_.erase(0, received_.size() - rest.size());
}

void spawner_connection::handle(spawn_frame kind, std::string_view body) {
  if (kind == spawn_frame::hello) {
    ready_ = true;
    return;
  }
  spawn_reader in{body};
  auto id = in.number();
  if (kind == spawn_frame::refused)
    return refuse(id, {ec::spawn, in.text()});
  if (kind == spawn_frame::started) {
    auto pid = static_cast<pid_t>(in.number());
    spawner_client::started_callback started;
    {
      std::lock_guard guard{mutex_};
      auto& process = processes_.at(id);
      process.pid = pid;
      started = std::move(process.started);
    }
    if (started)
      started(pid);
  } else if (kind == spawn_frame::ended) {
    process_exit end;
    end.how = static_cast<process_exit::kind>(in.number());
    end.code = static_cast<int>(in.number());
    end.last_words = in.text();
    spawner_client::ended_callback ended;
    {
      std::lock_guard guard{mutex_};
      ended = std::move(processes_.at(id).ended);
      processes_.erase(id);
    }
    if (ended)
      ended(std::move(end));
  }
}

void spawner_connection::send() {
  auto n = send_with_descriptors(
    link_.socket.get(), std::string_view{sending_.bytes}.substr(sending_.sent),
    sending_.descriptors);
  if (n < 0) {
    if (errno != EAGAIN && errno != EINTR)
      lose_spawner({});
    return;
  }
  sending_.sent += static_cast<std::size_t>(n);
  sending_.descriptors.clear();
}

bool spawner_connection::next_frame() {
  // Before its hello a spawner might be a program that never becomes one.
  while (ready_ && link_.socket) {
    order next;
    {
      std::lock_guard guard{mutex_};
      if (orders_.empty())
        return false;
      next = std::move(orders_.front());
      orders_.pop_front();
    }
    if (next.signal != 0) {
      spawn_writer body;
      body.put(next.id);
      body.put(static_cast<std::uint64_t>(next.signal));
      sending_ = {make_frame(spawn_frame::signal, body.take()), 0, {}};
      return true;
    }
    auto made = make_start_frame(next.id, std::move(next.request));
    if (made) {
      sending_ = std::move(*made);
      return true;
    }
    refuse(next.id, made.error());
  }
  return false;
}

expected<spawner_connection::frame>
spawner_connection::make_start_frame(std::uint64_t id, spawn_request request) {
  if (request.payload.size() > max_spawn_payload)
    return failure(ec::spawn, "a rank's payload of "
                                + std::to_string(request.payload.size())
                                + " bytes is over the limit of 64 MiB");
  if (request.descriptors.size() > max_spawn_descriptors)
    return failure(ec::spawn, std::to_string(request.descriptors.size())
                                + " descriptors for a rank are over the limit "
                                  "of 200");
  frame result;
  for (int standard : {STDOUT_FILENO, STDERR_FILENO}) {
    auto output = open_output(request, standard);
    if (!output)
      return tl::unexpected{output.error()};
    result.descriptors.push_back(std::move(*output));
  }
  for (auto& fd : request.descriptors)
    result.descriptors.push_back(std::move(fd));
  result.bytes =
    make_frame(spawn_frame::start,
               encode(spawn_order{
                 id, std::move(request.payload), std::move(request.hidden),
                 std::move(request.environment), std::move(request.cores)}),
               result.descriptors.size());
  return result;
}

void spawner_connection::refuse(std::uint64_t id, const error& why) {
  spawner_client::started_callback started;
  {
    std::lock_guard guard{mutex_};
    auto found = processes_.find(id);
    if (found == processes_.end())
      return;
    started = std::move(found->second.started);
    processes_.erase(found);
  }
  if (started)
    started(tl::unexpected{why});
}

void spawner_connection::lose_spawner(std::string why) {
  // Killed first: after this no rank can be left that nobody watches.
  send_signal(link_.process, SIGKILL);
  auto end = bury(link_, -1);
  auto was_ready = std::exchange(ready_, false);
  if (why.empty())
    why = was_ready ? end : end + " before it was ready";
  std::map<std::uint64_t, process> lost;
  {
    std::lock_guard guard{mutex_};
    link_ = {};
    // What was not sent yet is for the next spawner.
    for (const auto& x : orders_)
      if (was_ready && x.signal == 0)
        if (auto node = processes_.extract(x.id))
          lost.insert(std::move(node));
    std::swap(lost, processes_);
    std::erase_if(orders_,
                  [&](const order& x) { return processes_.count(x.id) == 0; });
  }
  received_.clear();
  sending_ = {};
  auto cause = "ended with the spawner, which " + why;
  for (auto& [id, process] : lost) {
    if (process.pid < 0) {
      if (process.started)
        process.started(failure(ec::spawn, "not started: the spawner " + why));
    } else if (process.ended) {
      process.ended({process_exit::kind::lost, 0, cause});
    }
  }
}

void spawner_connection::fail_everything(const error& why) {
  std::deque<order> orders;
  {
    std::lock_guard guard{mutex_};
    orders.swap(orders_);
  }
  for (const auto& x : orders)
    refuse(x.id, why);
}

} // namespace troupe
