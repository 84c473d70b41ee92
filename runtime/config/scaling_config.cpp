#include "troupe/runtime/config/scaling_config.hpp"

#include <sched.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <string>

#include "troupe/runtime/fs.hpp"

namespace troupe {

namespace {

std::string number(double x) {
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%g", x);
  return buffer;
}

int count_gpus() {
  // The driver makes /dev/nvidia0, /dev/nvidia1, …; other names are not cards.
  int result = 0;
  boost::system::error_code ignored;
  for (fs::directory_iterator i{"/dev", ignored}, end; i != end; ++i) {
    auto name = i->path().filename().string();
    result += name.size() > 6 && name.compare(0, 6, "nvidia") == 0
              && std::all_of(name.begin() + 6, name.end(), [](unsigned char c) {
                   return std::isdigit(c) != 0;
                 });
  }
  return result;
}

expected<void> claim(const char* what, double each, int ranks, double have) {
  if (!std::isfinite(each) || each < 0)
    return failure(ec::invalid_config, std::string{"resources_per_worker."}
                                         + what + " must be a number >= 0, got "
                                         + number(each));
  if (each * ranks > have)
    return failure(ec::invalid_config, std::to_string(ranks)
                                         + " workers ask for "
                                         + number(each * ranks) + ' ' + what
                                         + ", this host has " + number(have));
  return {};
}

} // namespace

host_resources local_resources() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  sched_getaffinity(0, sizeof(cores), &cores);
  return {static_cast<double>(CPU_COUNT(&cores)),
          static_cast<double>(count_gpus())};
}

expected<void> validate(const scaling_config& x, const host_resources& host) {
  if (x.num_workers < 0)
    return failure(ec::invalid_config, "scaling.num_workers must be >= 0, got "
                                         + std::to_string(x.num_workers));
  auto ranks = std::max(x.num_workers, 1);
  auto& each = x.resources_per_worker;
  if (auto ok = claim("cpus", each.cpus.value_or(0), ranks, host.cpus); !ok)
    return ok;
  return claim("gpus", each.gpus.value_or(x.use_gpu ? 1 : 0), ranks, host.gpus);
}

} // namespace troupe
