// Measures all_reduce_hosts_25m: an all-reduce of 25 MiB of floats between 2
// hosts with 2 ranks each, over a wire of 1 Gbit, by `hierarchical` and by flat
// Gloo, in turns. The hosts are namespaces made by shared/tools/hosts/hosts.sh,
// whose path is the argument.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#ifndef USE_C10D_GLOO
#define USE_C10D_GLOO
#endif
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "troupe/trainers/torch/groups/hierarchical_group.hpp"

namespace troupe::internal::bench {

namespace {

constexpr int hosts = 2;
constexpr int local_ranks = 2;
constexpr int rounds = 10;
constexpr std::int64_t bytes = std::int64_t{25} << 20;

/// Of a payload in TCP segments with time stamps, on a wire of 1 Gbit.
constexpr double wire_ms =
  static_cast<double>(bytes) * 8 / 1e9 * 1e3 * (1514.0 / 1448.0);

double time_of(c10d::Backend& group, std::vector<at::Tensor>& x) {
  x[0].fill_(1); // avoids overflowing sums
  group.barrier(c10d::BarrierOptions{})->wait();
  auto before = std::chrono::steady_clock::now();
  group.allreduce(x, c10d::AllreduceOptions{})->wait();
  std::chrono::duration<double, std::milli> result =
    std::chrono::steady_clock::now() - before;
  if (!x[0].eq(hosts * local_ranks).all().item<bool>())
    std::abort();
  return result.count();
}

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

int run_rank(const std::string& file, int host, int local,
             shared_segment segment) {
  at::set_num_threads(1);
  auto rank = host * local_ranks + local;
  auto ranks = hosts * local_ranks;
  auto address = "198.18.0." + std::to_string(host + 1);
  auto base = c10::make_intrusive<c10d::FileStore>(file, ranks);
  c10d::PrefixStore store{"ours", base};
  join_ring_args how;
  auto meeting = host_meeting::begin(
    store,
    {rank, local, local_ranks, ranks, "h" + std::to_string(host + 1), address},
    how);
  auto places = meeting->join(store, how);
  if (!places) {
    std::fprintf(stderr, "%s\n", places.error().message.c_str());
    return 1;
  }
  auto ours = c10::make_intrusive<hierarchical_group>(
    std::move(segment), local, std::move(*places), std::chrono::minutes{1});
  auto options =
    c10d::ProcessGroupGloo::Options::create(std::chrono::minutes{1});
  options->devices.push_back(
    c10d::ProcessGroupGloo::createDeviceForHostname(address));
  options->threads = 2;
  auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(
    c10::make_intrusive<c10d::PrefixStore>("gloo", base), rank, ranks, options);
  std::vector<at::Tensor> x{at::ones({bytes / 4})};
  std::vector<double> ours_ms, gloo_ms;
  for (int round = -1; round < rounds; ++round) {
    auto a = time_of(*ours, x);
    auto b = time_of(*gloo, x);
    if (round < 0) // the warm-up
      continue;
    ours_ms.push_back(a);
    gloo_ms.push_back(b);
  }
  if (rank == 0) {
    auto a = median(ours_ms);
    auto b = median(gloo_ms);
    std::printf("all_reduce_hosts_25m: %.0f ms, flat Gloo %.0f ms, ratio %.2f "
                "(goal 0.75); the wire needs %.0f ms, ratio %.2f (goal 1.15)\n",
                a, b, a / b, wire_ms, a / wire_ms);
  }
  std::fflush(stdout); // before _exit
  ours->barrier(c10d::BarrierOptions{})->wait();
  return 0;
}

/// The ranks of one host, which share a segment.
int run_host(const std::string& file, int host) {
  auto segment = shared_segment::create(local_ranks);
  int failed = 0;
  for (int local = 0; local < local_ranks; ++local)
    if (::fork() == 0)
      ::_exit(run_rank(file, host, local,
                       *shared_segment::attach(segment->descriptor())));
  for (int status = 0; ::wait(&status) > 0;)
    failed += status != 0;
  return failed;
}

int run_all(const std::string& program, const std::string& tool) {
  auto folder =
    (std::filesystem::temp_directory_path() / "troupe-XXXXXX").string();
  if (!std::filesystem::exists(tool) || ::mkdtemp(folder.data()) == nullptr) {
    std::printf("all_reduce_hosts_25m: skipped, there is no %s\n",
                tool.c_str());
    return 0;
  }
  ::setenv("TROUPE_HOSTS", (folder + "/hosts").c_str(), 1);
  auto call = [&](const std::string& what) {
    return std::system((tool + ' ' + what).c_str());
  };
  int failed = 0;
  if (call("up 2 && " + tool + " rate h1 1000 && " + tool + " rate h2 1000")
      != 0) {
    std::printf("all_reduce_hosts_25m: skipped, this kernel or user cannot "
                "make hosts of namespaces\n");
  } else {
    auto on = [&](int host) {
      return tool + " run h" + std::to_string(host + 1) + ' ' + program + ' '
             + folder + "/store " + std::to_string(host);
    };
    std::fflush(nullptr);
    failed = std::system(
      (on(1) + " & first=$!; " + on(0) + "; one=$?; wait $first && exit $one")
        .c_str());
  }
  call("down");
  std::filesystem::remove_all(folder);
  return failed != 0;
}

} // namespace

} // namespace troupe::internal::bench

int main(int argc, char** argv) {
  using namespace troupe::internal::bench;
  if (argc == 3)
    return run_host(argv[1], std::atoi(argv[2]));
  auto program = std::filesystem::canonical("/proc/self/exe").string();
  return run_all(program,
                 argc == 2 ? argv[1] : "../shared/tools/hosts/hosts.sh");
}
