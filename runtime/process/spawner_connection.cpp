#include "troupe/runtime/process/spawner_connection.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <set>
#include <utility>

#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/spawner.hpp"
#include "troupe/runtime/process/threads.hpp"
#include "troupe/runtime/process/would_block.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {
namespace {

// Loading LibTorch from a cold disk takes seconds; a minute is a hang.
constexpr std::chrono::seconds hello_timeout{60};

// How long the spawner may take to end its ranks before it is killed, which
// kills them too.
constexpr int farewell_timeout_ms = 2000;

// Between two attempts of a thread that has no memory.
constexpr int memory_pause_ms = 10;

constexpr const char* no_answer = "did not answer for 2 s and was killed";

std::atomic<std::uint64_t> losses = 0;

} // namespace

std::uint64_t spawner_losses() noexcept {
  return losses;
}

spawner_connection::spawner_connection(spawner_link link,
                                       std::vector<std::string> variables)
  : variables_{std::move(variables)}, link_{std::move(link)},
    deadline_{std::chrono::steady_clock::now() + hello_timeout} {}

void spawner_connection::close() noexcept {
  {
    std::lock_guard guard{mutex_};
    stopping_ = true;
  }
  wake_.notify();
  if (thread_.joinable())
    thread_.join();
  if (link_.socket)
    dismiss(link_, farewell_timeout_ms);
}

spawner_connection::process_id
spawner_connection::spawn(spawn_request request, started_callback started,
                          ended_callback ended) {
  order x;
  x.request = std::move(request);
  process made;
  made.started = std::move(started);
  made.ended = std::move(ended);
  process_id id = 0;
  {
    std::lock_guard guard{mutex_};
    id = x.id = ++last_id_;
    processes_.emplace(id, std::move(made));
  }
  if (auto ok = push(std::move(x)); !ok)
    refuse(id, ok.error());
  return id;
}

void spawner_connection::kill(process_id id, int signal) {
  order x{id, signal, {}};
  {
    std::lock_guard guard{mutex_};
    auto found = processes_.find(id);
    if (signal <= 0 || found == processes_.end())
      return;
    auto& process = found->second;
    if (process.handle)
      return send_signal(process.handle, signal);
    if (!process.due)
      process.due = clock::now() + answer_limit;
    if (process.pid < 0) {
      process.unwanted = true;
      return wake_.notify();
    }
  }
  (void) push(std::move(x)); // The thread exists: it reported the pid.
}

bool spawner_connection::has_ended(process_id id) const {
  std::lock_guard guard{mutex_};
  auto found = processes_.find(id);
  if (found == processes_.end())
    return true; // Delivered.
  auto& process = found->second;
  return process.gone || !process.lost.empty()
         || (process.handle && internal::has_ended(process.handle, 0));
}

expected<void> spawner_connection::check_user() const {
  auto user = ::geteuid();
  auto group = ::getegid();
  if (user == user_ && group == group_)
    return {};
  return failure(ec::invalid_argument,
                 concat("this process runs as user ", user, " and group ",
                        group, " now, but its ranks would run as user ", user_,
                        " and group ", group_,
                        ": call troupe::init only after the change"));
}

expected<void> spawner_connection::push(order x) {
  std::lock_guard guard{mutex_};
  if (stopping_)
    return failure(ec::stopped, "not started: the program ends");
  if (!thread_.joinable()) {
    TROUPE_TRY(thread_, start_thread([this] { run(); }));
  }
  orders_.push_back(std::move(x));
  wake_.notify();
  return {};
}

void spawner_connection::run() {
  for (;;) {
    {
      std::lock_guard guard{mutex_};
      if (stopping_)
        return;
    }
    try {
      if (ensure_spawner())
        wait();
    } catch (...) {
      recover();
    }
  }
}

void spawner_connection::recover() noexcept {
  for (;;) {
    {
      std::lock_guard guard{mutex_};
      if (stopping_)
        return;
    }
    try {
      if (link_.socket)
        return lose_spawner("was killed: the driver is out of memory");
      return fail_everything(
        {ec::spawn, "not started: the driver is out of memory"});
    } catch (...) { // Nothing else may happen before.
      ::poll(nullptr, 0, memory_pause_ms);
    }
  }
}

bool spawner_connection::ensure_spawner() {
  {
    std::lock_guard guard{mutex_};
    if (link_.socket || orders_.empty())
      return true;
  }
  auto link = exec_spawner(variables_);
  if (!link) {
    fail_everything(link.error());
    return false;
  }
  ready_ = hung_ = false;
  deadline_ = clock::now() + hello_timeout;
  std::lock_guard guard{mutex_};
  link_ = std::move(*link);
  return true;
}

void spawner_connection::wait() {
  drop_cancelled();
  // Nothing is sent before the hello: until then a request can be taken back.
  bool sends =
    ready_ && (sending_.sent < sending_.bytes.size() || next_frame());
  // poll skips a negative descriptor: without a spawner only a wake-up counts.
  std::vector<pollfd> waits{{wake_.fd(), POLLIN, 0},
                            {link_.socket.get(), POLLIN, 0}};
  if (sends)
    waits[1].events |= POLLOUT;
  auto watched = watch_processes(waits);
  if (wait_until_ready(waits, next_deadline()) == wait_outcome::failed)
    return;
  if (waits[0].revents != 0)
    wake_.clear();
  for (std::size_t i = 0; i < watched.size(); ++i)
    if (waits[i + 2].revents != 0)
      see_end(watched[i]);
  // Nothing is sent to a dead spawner, and one that answers is not blamed for
  // answers that are still missing.
  if ((waits[1].revents & ~POLLOUT) != 0)
    return receive();
  if (waits[1].revents != 0)
    send();
  check_answers();
}

spawner_connection::clock::time_point
spawner_connection::next_deadline() const {
  std::lock_guard guard{mutex_};
  auto result = clock::time_point::max();
  if (link_.socket && !ready_)
    result = deadline_;
  for (const auto& [id, process] : processes_)
    result = std::min(result, process.due.value_or(result));
  return result;
}

std::vector<spawner_connection::process_id>
spawner_connection::watch_processes(std::vector<pollfd>& waits) {
  std::vector<process_id> result;
  std::lock_guard guard{mutex_};
  for (const auto& [id, process] : processes_) {
    if (!process.handle || process.gone)
      continue;
    waits.push_back({process.handle.get(), POLLIN, 0});
    result.push_back(id);
  }
  return result;
}

void spawner_connection::see_end(process_id id) {
  std::string lost;
  {
    std::lock_guard guard{mutex_};
    auto& process = processes_.at(id);
    process.gone = true;
    // The spawner reports the cause.
    process.due = clock::now() + answer_limit;
    lost = process.lost;
  }
  if (!lost.empty())
    notify_ended(id, {process_exit::kind::lost, 0, std::move(lost)});
}

void spawner_connection::drop_cancelled() {
  std::vector<process_id> dropped;
  {
    std::lock_guard guard{mutex_};
    std::erase_if(orders_, [&](const order& x) {
      auto found = processes_.find(x.id);
      if (found == processes_.end() || x.signal != 0 || !found->second.unwanted)
        return false;
      dropped.push_back(x.id);
      return true;
    });
  }
  for (auto id : dropped)
    refuse(id, {ec::spawn, "not started: it was no longer needed"});
}

void spawner_connection::check_answers() {
  auto now = clock::now();
  if (link_.socket && !ready_ && deadline_ <= now)
    return lose_spawner(
      "did not answer within 60 s: main does not reach troupe::init");
  std::vector<process_id> ended;
  bool unanswered = false;
  bool has_ranks = false;
  {
    std::lock_guard guard{mutex_};
    for (const auto& [id, process] : processes_) {
      auto overdue = process.due && *process.due <= now;
      if (process.gone && overdue)
        ended.push_back(id);
      else if (overdue)
        unanswered = true;
      else if (process.pid >= 0)
        has_ranks = true;
    }
  }
  if (!ended.empty())
    ++losses;
  for (auto id : ended)
    notify_ended(id, {process_exit::kind::lost, 0,
                      "ended; the spawner did not say how within 2 s"});
  hung_ = hung_ || !ended.empty();
  // Its ranks, if any, may still end well.
  if (link_.socket && (unanswered || (hung_ && !has_ranks)))
    lose_spawner(no_answer);
}

void spawner_connection::receive() {
  auto n = frames_.receive(link_.socket.get());
  if (n == 0 || (n < 0 && !is_temporary(errno)))
    return lose_spawner({});
  if (n < 0)
    return;
  hung_ = false;
  for (;;) {
    auto frame = frames_.next();
    if (!frame)
      return lose_spawner("sent malformed data and was killed");
    if (!*frame)
      return;
    handle(std::move(**frame));
  }
}

void spawner_connection::handle(received_frame x) {
  if (x.kind == spawn_frame::hello) {
    ready_ = true;
    return;
  }
  spawn_reader in{x.body};
  auto id = in.number();
  if (x.kind == spawn_frame::refused)
    return refuse(id, {ec::spawn, in.text()});
  if (x.kind == spawn_frame::started)
    return notify_started(id, static_cast<pid_t>(in.number()),
                          std::move(x.descriptor));
  if (x.kind != spawn_frame::ended)
    return;
  if (auto end = decode_rank_end(x.body))
    notify_ended(end->id, std::move(end->how));
  else
    lose_spawner("sent malformed data and was killed");
}

void spawner_connection::notify_started(process_id id, pid_t pid,
                                        unique_fd handle) {
  started_callback started;
  bool unwanted = false;
  {
    std::lock_guard guard{mutex_};
    auto& process = processes_.at(id);
    process.pid = pid;
    process.handle = std::move(handle);
    process.due.reset();
    started = std::move(process.started);
    unwanted = process.unwanted;
  }
  if (unwanted)
    kill(id, SIGKILL);
  if (started)
    started(pid);
}

void spawner_connection::notify_ended(process_id id, process_exit how) {
  ended_callback ended;
  {
    std::lock_guard guard{mutex_};
    auto found = processes_.find(id);
    if (found == processes_.end())
      return; // Reported already: the spawner took too long.
    ended = std::move(found->second.ended);
    processes_.erase(found);
  }
  if (ended)
    ended(std::move(how));
}

void spawner_connection::send() {
  auto n = send_with_descriptors(
    link_.socket.get(), std::string_view{sending_.bytes}.substr(sending_.sent),
    sending_.descriptors, MSG_DONTWAIT);
  if (n < 0) {
    if (!is_temporary(errno))
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
    if (!next.made.bytes.empty()) {
      sending_ = std::move(next.made);
      return true;
    }
    auto made = make_start(next.id, std::move(next.request));
    if (made) {
      sending_ = {std::move(made->bytes), 0, std::move(made->descriptors),
                  next.id};
      return true;
    }
    refuse(next.id, made.error());
  }
  return false;
}

void spawner_connection::refuse(process_id id, const error& why) {
  started_callback started;
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
  // Its ranks die with it. Their child processes in other sessions may be left:
  // the loss is counted before the ranks' ends are reported.
  ++losses;
  send_signal(link_.process, SIGKILL);
  auto end = reap(link_, 0);
  auto was_ready = std::exchange(ready_, false);
  hung_ = false;
  if (why.empty())
    why = was_ready ? end : end + " before it was ready";
  auto cause = "ended with the spawner, which " + why;
  process_map refused, ended;
  {
    std::lock_guard guard{mutex_};
    // Unsent requests go to the next spawner.
    if (sending_.starts != 0 && sending_.sent == 0) {
      orders_.push_front({sending_.starts, 0, {}, {}});
      orders_.front().made = std::exchange(sending_, {});
    }
    std::set<process_id> waiting;
    for (const auto& x : orders_)
      if (was_ready && x.signal == 0)
        waiting.insert(x.id);
    for (auto& [id, process] : processes_)
      if (process.pid >= 0)
        process.lost = cause; // Reported when it has ended.
    // Nothing from here on needs memory.
    link_ = {};
    for (auto i = processes_.begin(); i != processes_.end();) {
      auto& [id, process] = *i;
      auto at = i++;
      if (process.pid < 0) {
        if (waiting.count(id) == 0)
          refused.insert(processes_.extract(at));
      } else if (process.handle && !process.gone) {
        send_signal(process.handle, SIGKILL);
      } else {
        ended.insert(processes_.extract(at));
      }
    }
    std::erase_if(orders_,
                  [&](const order& x) { return waiting.count(x.id) == 0; });
  }
  frames_.clear();
  sending_ = {};
  for (auto& [id, process] : refused)
    if (process.started)
      process.started(failure(ec::spawn, "not started: the spawner " + why));
  for (auto& [id, process] : ended)
    if (process.ended)
      process.ended({process_exit::kind::lost, 0, cause});
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

} // namespace troupe::internal
