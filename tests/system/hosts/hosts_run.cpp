// A run on whatever hosts it finds, which tells a test where its ranks are.
//
//   hosts_run FOLDER [--hosts LIST] [--workers N] [--fewest N] [--per-host N]
//             [--waits N] [--holds N] [--join-ms N]
//
// Each rank writes a line to the FIFO `events` in FOLDER. In the first `waits`
// attempts the ranks then wait for a fault, in the first `holds` attempts until
// someone opens the FIFO `go` in FOLDER.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>

#include <cereal/cereal.hpp>
#include <cereal/types/string.hpp>

#include <troupe/train.hpp>

namespace {

struct plan {
  std::string folder;
  int waits = 0;
  int holds = 0;

  template <class Archive>
  void serialize(Archive& ar) {
    ar(folder, waits, holds);
  }
};

void loop(troupe::train_context& context, const plan& x) {
  char host[256] = {};
  ::gethostname(host, sizeof(host) - 1);
  char folder[4096] = {};
  auto there = ::getcwd(folder, sizeof(folder) - 1);
  auto text = std::to_string(context.attempt()) + ' '
              + std::to_string(context.rank()) + ' '
              + std::to_string(context.node_rank()) + ' '
              + std::to_string(context.local_rank()) + ' ' + host + ' '
              + std::to_string(::getpid()) + ' ' + (there ? there : "-") + '\n';
  auto events = ::open((x.folder + "/events").c_str(), O_WRONLY | O_CLOEXEC);
  (void) !::write(events, text.data(), text.size());
  ::close(events);
  std::printf("rank %d says hello from %s\n", context.rank(), host);
  std::fflush(stdout);
  context.barrier();
  while (static_cast<int>(context.attempt()) < x.waits)
    ::pause();
  if (static_cast<int>(context.attempt()) < x.holds)
    ::close(::open((x.folder + "/go").c_str(), O_RDONLY | O_CLOEXEC));
  context.report({{"world", context.world_size()}});
}

} // namespace

/// Open MPI's libpmix keeps what it allocated until the process ends.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libpmix.so";
}

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  std::map<std::string, std::string> given;
  for (int i = 2; i + 1 < argc; i += 2)
    given[argv[i]] = argv[i + 1];
  auto number = [&](const char* name, int fallback) {
    return given.count(name) ? std::stoi(given[name]) : fallback;
  };
  std::string folder = argc > 1 ? argv[1] : ".";
  troupe::train_options options;
  auto workers = number("--workers", 1);
  options.scaling.num_workers = {number("--fewest", workers), workers};
  options.scaling.workers_per_host = number("--per-host", 0);
  options.scaling.join_timeout =
    std::chrono::milliseconds{number("--join-ms", 60'000)};
  options.run.name = "run";
  options.run.storage_path = folder + "/storage";
  options.run.failure.max_failures = 2;
  troupe::data_parallel_trainer trainer{
    loop, plan{folder, number("--waits", 0), number("--holds", 0)}, options};
  auto result = trainer.fit();
  return result.error ? 3 : 0;
}
