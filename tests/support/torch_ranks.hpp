#pragma once

#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <dlfcn.h>
#include <execinfo.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
// The header is empty without the macro, which users of LibTorch have to
// define.
#ifndef USE_C10D_GLOO
#define USE_C10D_GLOO
#endif
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "troupe/runtime/process/shared_segment.hpp"
#include "troupe/runtime/process/stack_dump.hpp"
#include "troupe/trainers/torch/groups/hierarchical_group.hpp"
#include "troupe/trainers/torch/groups/local_group.hpp"

namespace troupe::internal::test {

using group_ptr = c10::intrusive_ptr<c10d::ProcessGroup>;

/// A failed expectation on a rank, whether it is a thread or a process.
inline void check(bool ok, const std::string& what) {
  if (!ok)
    throw std::runtime_error(what);
}

/// LibTorch 2.11 and older have other names for the collectives of a single
/// tensor; newer versions call these deprecated.
template <class Group>
auto all_gather_single(Group& group, at::Tensor& whole, at::Tensor& part) {
  if constexpr (requires { group.all_gather_single(whole, part); })
    return group.all_gather_single(whole, part);
  else
    return group._allgather_base(whole, part);
}

template <class Group>
auto reduce_scatter_single(Group& group, at::Tensor& part, at::Tensor& whole) {
  if constexpr (requires { group.reduce_scatter_single(part, whole); })
    return group.reduce_scatter_single(part, whole);
  else
    return group._reduce_scatter_base(part, whole);
}

/// Where the ranks of one test meet; created before they start.
class meeting_place {
public:
  virtual ~meeting_place() = default;

  /// Group *number* (0, 1) of *size* ranks, as *rank* sees it.
  virtual group_ptr group(int number, int rank, int size) = 0;
};

/// A store in memory (threads) or in a file that is removed with it
/// (processes).
class meeting_store {
public:
  explicit meeting_store(bool processes) : owner_(getpid()) {
    if (!processes) {
      in_memory_ = c10::make_intrusive<c10d::HashStore>();
      return;
    }
    auto folder = std::filesystem::temp_directory_path() / "troupe-XXXXXX";
    auto name = folder.string();
    check(mkdtemp(name.data()) != nullptr, "no folder in " + name);
    folder_ = name;
  }

  ~meeting_store() {
    if (!folder_.empty() && getpid() == owner_)
      std::filesystem::remove_all(folder_);
  }

  /// For group *number* of *size* ranks.
  c10::intrusive_ptr<c10d::Store> of_group(int number, int size) const {
    return c10::make_intrusive<c10d::PrefixStore>(std::to_string(number) + '/',
                                                  base(size));
  }

private:
  c10::intrusive_ptr<c10d::Store> base(int size) const {
    if (in_memory_)
      return in_memory_;
    return c10::make_intrusive<c10d::FileStore>((folder_ / "store").string(),
                                                size);
  }

  pid_t owner_;
  c10::intrusive_ptr<c10d::Store> in_memory_;
  std::filesystem::path folder_;
};

/// Gloo over loopback.
class gloo_meeting_place final : public meeting_place {
public:
  explicit gloo_meeting_place(bool processes) : store_(processes) {}

  group_ptr group(int number, int rank, int size) override {
    auto store = store_.of_group(number, size);
    auto options =
      c10d::ProcessGroupGloo::Options::create(std::chrono::seconds{60});
    options->devices.push_back(
      c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
    options->threads = 2;
    auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, size);
    auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(
      c10::make_intrusive<c10d::PrefixStore>("cpu/", store), rank, size,
      options);
    group->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::GLOO, gloo);
    group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
    return group;
  }

private:
  meeting_store store_;
};

/// A group whose collectives on CPU tensors go to *member*.
inline group_ptr group_over(const c10::intrusive_ptr<c10d::Backend>& member) {
  auto group = c10::make_intrusive<c10d::ProcessGroup>(
    c10::make_intrusive<c10d::HashStore>(), member->getRank(),
    member->getSize());
  group->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::CUSTOM, member);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  return group;
}

/// Shared memory. A segment serves one group and must exist before the ranks
/// start, so segments are created for every number and every size.
class local_meeting_place final : public meeting_place {
public:
  explicit local_meeting_place(int size) {
    for (int number = 0; number < numbers; ++number)
      for (int ranks = 2; ranks <= size; ++ranks) {
        auto segment = shared_segment::create(ranks);
        check(segment.has_value(), "no shared segment");
        segments_.emplace(std::pair{number, ranks}, std::move(*segment));
      }
  }

  group_ptr group(int number, int rank, int size) override {
    auto segment =
      shared_segment::attach(segments_.at({number, size}).descriptor());
    check(segment.has_value(), "cannot attach to the segment");
    return group_over(c10::make_intrusive<local_group>(
      std::move(*segment), rank, std::chrono::seconds{60}));
  }

private:
  static constexpr int numbers = 2;
  std::map<std::pair<int, int>, shared_segment> segments_;
};

/// Several hosts on this one: ranks that share memory, and a ring over
/// loopback. The first hosts have a rank more, if they cannot all have as many.
class hierarchical_meeting_place final : public meeting_place {
public:
  hierarchical_meeting_place(int size, bool processes, int hosts = 2)
    : hosts_(hosts), store_(processes) {
    for (int number = 0; number < 2; ++number)
      for (int ranks = 2; ranks <= size; ++ranks)
        for (int host = 0; host < std::min(hosts, ranks); ++host) {
          auto segment = shared_segment::create(ranks_of(host, ranks));
          check(segment.has_value(), "no shared segment");
          segments_.emplace(std::tuple{number, ranks, host},
                            std::move(*segment));
        }
  }

  /// How many of *size* ranks are on *host*.
  int ranks_of(int host, int size) const {
    return size / hosts_ + (host < size % hosts_ ? 1 : 0);
  }

  const shared_segment& segment(int number, int size, int host) const {
    return segments_.at({number, size, host});
  }

  group_ptr group(int number, int rank, int size) override {
    return group_over(member(number, rank, size));
  }

  c10::intrusive_ptr<hierarchical_group>
  member(int number, int rank, int size,
         std::chrono::milliseconds timeout = std::chrono::seconds{60}) {
    int host = 0;
    int first = 0;
    while (rank >= first + ranks_of(host, size))
      first += ranks_of(host++, size);
    auto store = store_.of_group(number, size);
    store->setTimeout(std::chrono::seconds{60});
    join_ring_args how;
    auto meeting =
      host_meeting::begin(*store,
                          {rank, rank - first, ranks_of(host, size), size,
                           std::string(1, char('a' + host)), "127.0.0.1"},
                          how);
    check(meeting.has_value(), "no port");
    auto places = meeting->join(*store, how);
    check(places.has_value(), places ? "" : places.error().message);
    auto attached =
      shared_segment::attach(segment(number, size, host).descriptor());
    check(attached.has_value(), "cannot attach to the segment");
    return c10::make_intrusive<hierarchical_group>(
      std::move(*attached), rank - first, std::move(*places), timeout);
  }

private:
  int hosts_;
  meeting_store store_;
  std::map<std::tuple<int, int, int>, shared_segment> segments_;
};

/// Runs *body* for ranks 0 .. *size* - 1, each on its own thread, and returns
/// what each threw (empty: nothing).
inline std::vector<std::string>
run_threads(int size, const std::function<void(int)>& body) {
  std::vector<std::string> failures(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([rank, &body, &failures] {
      try {
        body(rank);
      } catch (const std::exception& e) {
        failures[static_cast<size_t>(rank)] = e.what();
      }
    });
  for (auto& thread : threads)
    thread.join();
  return failures;
}

/// Where a forked rank writes its failure.
inline int words_of_rank = -1;

/// Writes the stack of the thread that *signal* ends together with its process.
inline void write_stack(int signal) {
  void* frames[64];
  auto n = backtrace(frames, 64);
  dprintf(words_of_rank, "ended by signal %d at\n", signal);
  symbol_table symbols;
  for (int i = 0; i < n; ++i) {
    Dl_info found{};
    symbol_table::function x;
    if (dladdr(frames[i], &found) != 0
        && symbols.open(found.dli_fname, found.dli_fbase))
      x = symbols.find(frames[i]);
    dprintf(words_of_rank, "%.*s %s+%#zx\n", static_cast<int>(x.name.size()),
            x.name.data(), found.dli_fname ? found.dli_fname : "?",
            static_cast<size_t>(static_cast<char*>(frames[i])
                                - static_cast<char*>(found.dli_fbase)));
  }
  raise(signal); // with its default action
}

inline void write_stack_at_end(int words) {
  words_of_rank = words;
  void* frame;
  backtrace(&frame, 1); // loads what it needs
  struct sigaction action {};
  action.sa_handler = write_stack;
  action.sa_flags = SA_RESETHAND | SA_NODEFER;
  for (auto signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT})
    sigaction(signal, &action, nullptr);
}

/// The same in a forked process each. The caller must have a single thread. A
/// rank that a signal ends gives its stack as its failure.
inline std::vector<std::string>
run_processes(int size, const std::function<void(int)>& body) {
  struct child {
    pid_t pid;
    FILE* words;
  };
  std::vector<child> children;
  for (int rank = 0; rank < size; ++rank) {
    int ends[2];
    check(pipe(ends) == 0, "no pipe");
    std::fflush(nullptr);
    auto pid = fork();
    check(pid >= 0, "no process");
    if (pid == 0) {
      write_stack_at_end(ends[1]);
      std::string failure;
      try {
        body(rank);
      } catch (const std::exception& e) {
        failure = e.what();
      }
      auto written = write(ends[1], failure.data(), failure.size());
      _exit(written == static_cast<ssize_t>(failure.size()) ? 0 : 1);
    }
    close(ends[1]);
    children.push_back({pid, fdopen(ends[0], "r")});
  }
  std::vector<std::string> failures;
  for (auto& child : children) {
    std::string failure;
    for (int c; (c = std::fgetc(child.words)) != EOF;)
      failure += static_cast<char>(c);
    std::fclose(child.words);
    int status = 0;
    waitpid(child.pid, &status, 0);
    if (failure.empty() && status != 0)
      failure = "ended with status " + std::to_string(status);
    failures.push_back(failure);
  }
  return failures;
}

} // namespace troupe::internal::test
