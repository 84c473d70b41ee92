#include "troupe/runtime/hosts/host_launcher.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <deque>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "troupe/runtime/process/descriptor.hpp"
#include "troupe/runtime/process/processes.hpp"
#include "troupe/runtime/process/secrets.hpp"
#include "troupe/runtime/process/start_program.hpp"
#include "troupe/runtime/process/threads.hpp"
#include "troupe/runtime/process/unshared_fd.hpp"
#include "troupe/runtime/process/would_block.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

using steady = std::chrono::steady_clock;

/// What is kept of a launcher's standard error: bytes, lines, bytes per line.
/// An agent that finds no driver has a line for each address.
constexpr std::size_t max_kept = 4096;
constexpr std::size_t max_lines = 12;
constexpr std::size_t max_line = 300;

/// What is read at most of a launcher that has ended.
constexpr std::size_t max_rest = std::size_t{1} << 20;

/// The last lines of *text*, printable and without secrets.
std::string last_lines(std::string_view text) {
  std::deque<std::string> lines;
  while (!text.empty()) {
    auto size = std::min(text.find_first_of("\r\n"), text.size());
    auto line = utf8_text(text.substr(0, size));
    text.remove_prefix(std::min(size + 1, text.size()));
    std::erase_if(line, [](unsigned char c) { return c < ' ' && c != '\t'; });
    line.erase(0, line.find_first_not_of(" \t"));
    if (line.empty())
      continue;
    lines.emplace_back(cut_text(line, max_line));
    if (lines.size() > max_lines)
      lines.pop_front();
  }
  return redacted_lines(joined(lines, "\n"));
}

std::string in_one_line(std::string text) {
  for (auto at = text.find('\n'); at != text.npos; at = text.find('\n', at))
    text.replace(at, 1, at > 0 && text[at - 1] == ':' ? " " : "; ");
  return text;
}

struct pipe_of_launcher {
  unshared_fd reader;
  unshared_fd writer;
};

expected<pipe_of_launcher> make_launcher_pipe() {
  int ends[2];
  const fork_pause pause;
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return system_failure(ec::spawn, "cannot make a pipe for a launcher");
  return pipe_of_launcher{{unique_fd{ends[0]}, pause},
                          {unique_fd{ends[1]}, pause}};
}

void make_nonblocking(const unshared_fd& fd) {
  ::fcntl(fd.get(), F_SETFL, O_NONBLOCK);
}

} // namespace

std::string to_string(const launch_end& x) {
  auto text = in_one_line(x.output);
  if (x.how.how == process_exit::kind::lost)
    return text.empty() ? "its launcher did not begin" : text;
  return text.empty() ? "its launcher " + to_string(x.how)
                      : concat(text, " (", to_string(x.how), ')');
}

/// What the thread does.
class host_launcher::worker {
public:
  /// How far a launcher that is to end has come.
  enum class ending_step {
    none,
    input_closed,
    terminated,
    killed,
    hopeless, ///< Waits for a disk or a device, and is no longer watched.
  };

  /// A launcher that has been started.
  struct running {
    std::uint64_t launch = 0;
    started_program program;
    unshared_fd input; ///< Its agent leaves at the end of it.
    unshared_fd errors;
    std::string to_write;     ///< The rest of its input.
    std::string read;         ///< The last bytes of its standard error.
    bool is_prepared = false; ///< Its launch has not come, nor has its input.
    bool is_delivered = false;
    bool is_starting = true;
    bool has_said = false; ///< `launch_listener::said` was called.
    steady::time_point begun = steady::now();
    ending_step ending = ending_step::none;
    steady::time_point due{}; ///< Of the next step of its ending.
  };

  struct waiting {
    std::uint64_t launch = 0;
    std::vector<std::string> command;
    std::string input;
    std::optional<std::vector<std::string>> environment;
    bool is_prepared = false; ///< As above.
  };

  worker(launch_listener listener, limits x, wake_event wake)
    : listener_(std::move(listener)), limits_(x), wake_(std::move(wake)) {}

  worker(const worker&) = delete;
  worker& operator=(const worker&) = delete;

  ~worker() {
    order([this] { stopped_ = true; });
    if (thread_.joinable())
      thread_.join();
  }

  expected<void> begin() {
    TROUPE_TRY(thread_, start_thread([this] { run(); }));
    return {};
  }

  /// Calls *change* under the lock and wakes the thread.
  template <class Change>
  void order(Change change) {
    {
      std::lock_guard guard{mutex_};
      change();
    }
    wake_.notify();
  }

  // Guarded by the mutex.
  std::vector<waiting> ordered;
  std::vector<std::uint64_t> arrivals;
  std::vector<std::uint64_t> ends;

private:
  void run() {
    for (;;) {
      if (take_orders() && running_.empty())
        return;
      start_waiting();
      wait();
      for (auto& x : running_)
        serve(x);
      collect_ended();
    }
  }

  /// Returns whether all is to end.
  bool take_orders() {
    std::vector<waiting> orders;
    std::vector<std::uint64_t> arrived, ending;
    bool stopped = false;
    {
      std::lock_guard guard{mutex_};
      orders.swap(ordered);
      arrived.swap(arrivals);
      ending.swap(ends);
      stopped = stopped_;
    }
    for (auto& x : orders)
      take(std::move(x));
    for (auto launch : arrived)
      if (auto* x = find(launch))
        x->is_starting = false;
    for (auto launch : ending)
      end_launch(launch);
    while (stopped && !waiting_.empty())
      end_launch(waiting_.front().launch);
    for (auto& x : running_)
      if (stopped)
        begin_end(x);
    return stopped;
  }

  running* find(std::uint64_t launch) {
    auto i = std::ranges::find(running_, launch, &running::launch);
    return i == running_.end() ? nullptr : &*i;
  }

  /// What was prepared for a launch gets its input; another one has to start.
  void take(waiting x) {
    if (auto* prepared = find(x.launch)) {
      prepared->is_prepared = false;
      prepared->to_write = std::move(x.input);
      prepared->begun = steady::now(); // Its agent could not come before.
      write_input(*prepared);
      return;
    }
    auto i = std::ranges::find(waiting_, x.launch, &waiting::launch);
    if (i == waiting_.end())
      waiting_.push_back(std::move(x));
    else
      *i = std::move(x); // It keeps its turn.
  }

  void end_launch(std::uint64_t launch) {
    if (auto* x = find(launch)) {
      begin_end(*x);
      return;
    }
    auto i = std::ranges::find(waiting_, launch, &waiting::launch);
    if (i == waiting_.end())
      return;
    auto never_begun = std::move(*i);
    waiting_.erase(i);
    report_lost(never_begun, {});
  }

  void begin_end(running& x) {
    if (x.ending != ending_step::none)
      return;
    x.input.reset();
    x.to_write.clear();
    x.is_starting = false;
    x.ending = ending_step::input_closed;
    x.due = steady::now() + limits_.grace;
  }

  void start_waiting() {
    auto starting = static_cast<std::size_t>(std::ranges::count_if(
      running_, [](const running& x) { return x.is_starting; }));
    while (starting < limits_.starting && !waiting_.empty()) {
      auto next = std::move(waiting_.front());
      waiting_.pop_front();
      auto started = start(next);
      if (started) {
        write_input(running_.emplace_back(std::move(*started)));
        ++starting;
      } else {
        report_lost(next, std::move(started.error().message));
      }
    }
  }

  static expected<running> start(waiting& x) {
    TROUPE_TRY(auto input, make_launcher_pipe());
    TROUPE_TRY(auto errors, make_launcher_pipe());
    auto name = x.command.empty() ? std::string{} : x.command.front();
    program_start start{name,
                        std::move(x.command),
                        std::move(x.environment),
                        {{input.reader.get(), STDIN_FILENO},
                         {-1, STDOUT_FILENO},
                         {errors.writer.get(), STDERR_FILENO}}};
    TROUPE_TRY(auto program,
               start_program(std::move(start), "cannot start " + name));
    if (!program.process) { // It would run unseen.
      auto problem = errno;
      ::kill(program.pid, SIGKILL);
      uninterrupted([&] { return ::waitpid(program.pid, nullptr, 0); });
      return system_failure(ec::spawn, "cannot watch " + name, problem);
    }
    make_nonblocking(input.writer);
    make_nonblocking(errors.reader);
    running result;
    result.launch = x.launch;
    result.program = std::move(program);
    result.input = std::move(input.writer);
    result.errors = std::move(errors.reader);
    result.to_write = std::move(x.input);
    result.is_prepared = x.is_prepared;
    return result;
  }

  void wait() {
    std::vector<pollfd> waits{{wake_.fd(), POLLIN, 0}};
    auto due = steady::time_point::max();
    for (const auto& x : running_) {
      waits.push_back({x.program.process.get(), POLLIN, 0});
      waits.push_back({x.errors.get(), POLLIN, 0});
      if (!x.to_write.empty())
        waits.push_back({x.input.get(), POLLOUT, 0});
      if (x.ending != ending_step::none)
        due = std::min(due, x.due);
      else if (has_to_say(x))
        due = std::min(due, x.begun + limits_.patience);
    }
    wait_until_ready(waits, due);
    if (waits.front().revents != 0)
      wake_.clear();
  }

  /// Whether its words are passed on once it has taken too long.
  bool has_to_say(const running& x) const {
    return x.is_starting && !x.is_prepared && !x.has_said && !x.read.empty()
           && listener_.said;
  }

  void serve(running& x) {
    write_input(x);
    read_errors(x, max_kept);
    if (has_to_say(x) && steady::now() >= x.begun + limits_.patience) {
      x.has_said = true;
      if (auto words = in_one_line(last_lines(x.read)); !words.empty())
        listener_.said(x.launch, std::move(words));
    }
    if (x.ending == ending_step::none || steady::now() < x.due)
      return;
    x.due = steady::now() + limits_.grace;
    switch (x.ending) {
      case ending_step::input_closed:
        send_signal(x.program.process, SIGTERM);
        x.ending = ending_step::terminated;
        break;
      case ending_step::terminated:
        send_signal(x.program.process, SIGKILL);
        x.ending = ending_step::killed;
        break;
      default:
        x.ending = ending_step::hopeless;
    }
  }

  void write_input(running& x) {
    if (!x.input || x.is_prepared || x.is_delivered)
      return;
    while (!x.to_write.empty()) {
      auto n = uninterrupted([&] {
        return ::write(x.input.get(), x.to_write.data(), x.to_write.size());
      });
      if (n < 0 && would_block(errno))
        return;
      if (n < 0) { // It has closed its input, and will end.
        x.to_write.clear();
        x.input.reset();
        return;
      }
      x.to_write.erase(0, static_cast<std::size_t>(n));
    }
    x.is_delivered = true;
    listener_.delivered(x.launch);
  }

  /// Reads at most *limit* bytes.
  static void read_errors(running& x, std::size_t limit) {
    char bytes[16384];
    for (std::size_t total = 0; x.errors && total < limit;) {
      auto n = uninterrupted(
        [&] { return ::read(x.errors.get(), bytes, sizeof(bytes)); });
      if (n < 0 && would_block(errno))
        return;
      if (n <= 0) {
        x.errors.reset();
        return;
      }
      total += static_cast<std::size_t>(n);
      x.read.append(bytes, static_cast<std::size_t>(n));
      if (x.read.size() > max_kept)
        x.read.erase(0, x.read.size() - max_kept);
    }
  }

  void collect_ended() {
    for (auto i = running_.begin(); i != running_.end();) {
      auto has_gone = has_ended(i->program.process, 0);
      if (!has_gone && i->ending != ending_step::hopeless) {
        ++i;
        continue;
      }
      auto ended = std::move(*i);
      i = running_.erase(i);
      if (has_gone)
        report_end(ended);
      else
        report_lost(ended, "its launcher was killed but does not end");
    }
  }

  void report_end(running& x) {
    // Before its number may be used again.
    end_session(x.program.pid, limits_.grace);
    siginfo_t info{};
    auto rc = uninterrupted([&] {
      return ::waitid(P_PIDFD, static_cast<id_t>(x.program.process.get()),
                      &info, WEXITED);
    });
    if (x.is_prepared) // Its launch starts another one, whose end counts.
      return;
    launch_end end;
    end.launch = x.launch;
    end.how.how = process_exit::kind::lost;
    if (rc == 0) { // Otherwise the program itself waits for all children.
      end.how.how = info.si_code == CLD_EXITED ? process_exit::kind::exited
                                               : process_exit::kind::signaled;
      end.how.code = info.si_status;
    }
    read_errors(x, max_rest);
    end.output = last_lines(x.read);
    listener_.ended(std::move(end));
  }

  /// *x* is a launcher that runs, or waits to be started.
  template <class Launcher>
  void report_lost(const Launcher& x, std::string reason) {
    if (x.is_prepared)
      return;
    launch_end end;
    end.launch = x.launch;
    end.how.how = process_exit::kind::lost;
    end.output = std::move(reason);
    listener_.ended(std::move(end));
  }

  launch_listener listener_;
  limits limits_;
  wake_event wake_;
  std::mutex mutex_;
  bool stopped_ = false; // guarded by it
  std::deque<waiting> waiting_;
  std::list<running> running_;
  std::thread thread_;
};

host_launcher::host_launcher(std::unique_ptr<worker> x)
  : worker_(std::move(x)) {}

host_launcher::host_launcher(host_launcher&&) noexcept = default;

host_launcher::~host_launcher() = default;

expected<host_launcher> host_launcher::start(launch_listener listener,
                                             limits x) {
  wake_event wake;
  if (!wake)
    return system_failure(ec::spawn, "cannot make a descriptor for launchers");
  auto made = std::make_unique<worker>(std::move(listener), x, std::move(wake));
  TROUPE_TRY_VOID(made->begin());
  return host_launcher{std::move(made)};
}

expected<host_launcher> host_launcher::start(launch_listener listener) {
  return start(std::move(listener), {});
}

void host_launcher::prepare(
  std::uint64_t launch, std::vector<std::string> command,
  std::optional<std::vector<std::string>> environment) {
  worker_->order([&] {
    worker_->ordered.push_back(
      {launch, std::move(command), {}, std::move(environment), true});
  });
}

void host_launcher::launch(
  std::uint64_t launch, std::vector<std::string> command, std::string input,
  std::optional<std::vector<std::string>> environment) {
  worker_->order([&] {
    worker_->ordered.push_back({launch, std::move(command), std::move(input),
                                std::move(environment), false});
  });
}

void host_launcher::arrived(std::uint64_t launch) {
  worker_->order([&] { worker_->arrivals.push_back(launch); });
}

void host_launcher::end(std::uint64_t launch) {
  worker_->order([&] { worker_->ends.push_back(launch); });
}

} // namespace troupe::internal
