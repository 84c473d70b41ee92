#include <chrono>
#include <fstream>
#include <map>
#include <set>
#include <stdexcept>
#include <thread>

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <troupe/train.hpp>

#include "takes.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal::bench {

namespace {

constexpr int ranks = 64;
constexpr auto settle = std::chrono::seconds{1};
constexpr auto watch = std::chrono::seconds{5};

struct config {
  std::string waiting; ///< Rank 0 writes a byte once all ranks are there.
  std::string go_on;   ///< Rank 0 waits for a byte, the others for rank 0.

  TROUPE_FIELDS(waiting, go_on)
};

/// A named pipe, opened so that neither end waits for the other.
unique_fd open_pipe(const std::string& path) {
  return unique_fd{::open(path.c_str(), O_RDWR | O_CLOEXEC)};
}

void put(const unique_fd& pipe, char x) {
  if (::write(pipe.get(), &x, 1) != 1)
    throw std::runtime_error{"cannot write to a pipe"};
}

char take(const unique_fd& pipe) {
  char x = 0;
  if (::read(pipe.get(), &x, 1) != 1)
    throw std::runtime_error{"cannot read from a pipe"};
  return x;
}

void loop(train_context& context, const config& cfg) {
  context.barrier();
  if (context.rank() == 0) {
    put(open_pipe(cfg.waiting), 'w');
    take(open_pipe(cfg.go_on));
  }
  context.barrier();
}

/// This process and all its descendants.
std::set<pid_t> family() {
  std::multimap<pid_t, pid_t> children;
  for (auto& entry : fs::directory_iterator{"/proc"}) {
    auto pid = std::atoi(entry.path().filename().c_str());
    std::ifstream file{(entry.path() / "stat").string()};
    std::string line;
    if (pid == 0 || !std::getline(file, line))
      continue;
    // "pid (name) state parent ...", where the name may contain anything.
    char state = 0;
    pid_t parent = 0;
    if (std::sscanf(line.c_str() + line.rfind(')') + 1, " %c %d", &state,
                    &parent)
        == 2)
      children.emplace(parent, pid);
  }
  std::vector<pid_t> open{::getpid()};
  std::set<pid_t> result;
  while (!open.empty()) {
    auto pid = open.back();
    open.pop_back();
    result.insert(pid);
    auto [begin, end] = children.equal_range(pid);
    for (auto i = begin; i != end; ++i)
      open.push_back(i->second);
  }
  return result;
}

/// CPU seconds of all threads of *processes*.
double cpu_seconds(const std::set<pid_t>& processes) {
  double sum = 0;
  for (auto pid : processes) {
    clockid_t clock;
    timespec time{};
    if (::clock_getcpuclockid(pid, &clock) != 0
        || ::clock_gettime(clock, &time) != 0)
      throw std::runtime_error{"process " + std::to_string(pid)
                               + " ended while it should wait"};
    sum += static_cast<double>(time.tv_sec) + 1e-9 * time.tv_nsec;
  }
  return sum;
}

/// Percent of a core used while all ranks wait; -1 if the run fails before.
double watch_family(const config& cfg) {
  double percent = -1;
  if (take(open_pipe(cfg.waiting)) == 'w') {
    std::this_thread::sleep_for(settle);
    auto processes = family();
    if (processes.size() > ranks) {
      auto before = cpu_seconds(processes);
      std::this_thread::sleep_for(watch);
      percent = 100 * (cpu_seconds(processes) - before)
                / std::chrono::duration<double>{watch}.count();
    }
  }
  put(open_pipe(cfg.go_on), 'g');
  return percent;
}

} // namespace

figure idle(workplace& place) {
  config cfg{place.new_path("waiting"), place.new_path("go_on")};
  for (auto& path : {cfg.waiting, cfg.go_on})
    if (::mkfifo(path.c_str(), 0600) != 0)
      throw std::runtime_error{"cannot make the pipe " + path};
  // Kept open: what is written stays until it is read.
  auto waiting = open_pipe(cfg.waiting);
  auto go_on = open_pipe(cfg.go_on);
  double percent = -1;
  std::thread watcher{[&] {
    try {
      percent = watch_family(cfg);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "idle: %s\n", e.what());
      put(go_on, 'g');
    }
  }};
  auto outcome =
    data_parallel_trainer{
      loop, cfg, {.scaling = {.num_workers = ranks}, .run = place.new_run()}}
      .fit();
  put(waiting, 'x'); // if the ranks never started to wait
  watcher.join();
  outcome.value_or_throw();
  if (percent < 0)
    throw std::runtime_error{"the ranks did not wait"};
  return {percent, std::nullopt};
}

} // namespace troupe::internal::bench
