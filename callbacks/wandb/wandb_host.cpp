#include "troupe/callbacks/wandb/wandb_host.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <numeric>
#include <sstream>
#include <string>

#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

constexpr std::uint64_t max_read = 256 * 1024;

struct memory {
  double total = 0;     // KiB
  double available = 0; // KiB
};

memory read_memory() {
  memory result;
  std::ifstream in{"/proc/meminfo"};
  for (std::string line; std::getline(in, line);) {
    std::istringstream words{line};
    std::string name;
    double value = 0;
    words >> name >> value;
    if (name == "MemTotal:")
      result.total = value;
    else if (name == "MemAvailable:")
      result.available = value;
  }
  return result;
}

struct traffic {
  std::int64_t received = 0; // bytes
  std::int64_t sent = 0;     // bytes
};

// The traffic of all interfaces but loopback.
traffic read_traffic() {
  traffic result;
  std::ifstream in{"/proc/net/dev"};
  for (std::string line; std::getline(in, line);) {
    auto colon = line.find(':');
    if (colon == line.npos || line.substr(0, colon).ends_with("lo"))
      continue;
    std::istringstream words{line.substr(colon + 1)};
    std::array<std::int64_t, 9> fields{};
    for (auto& x : fields)
      words >> x;
    result.received += fields[0];
    result.sent += fields[8];
  }
  return result;
}

double resident_mb() {
  std::ifstream in{"/proc/self/statm"};
  std::uint64_t size = 0, resident = 0;
  in >> size >> resident;
  return static_cast<double>(resident)
         * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

std::int64_t threads() {
  std::ifstream in{"/proc/self/status"};
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("Threads:"))
      return std::stoll(line.substr(8));
  return 0;
}

void add(std::vector<wandb_item>& items, const char* key, metric_value x) {
  items.push_back({key, wandb_json(x)});
}

} // namespace

std::vector<std::string> read_console(const fs::path& path,
                                      std::uint64_t& from) {
  std::vector<std::string> result;
  auto file = open_file(path, O_RDONLY, "read");
  struct stat found {};
  if (!file || ::fstat(file->get(), &found) != 0 || !S_ISREG(found.st_mode))
    return result;
  auto size = static_cast<std::uint64_t>(found.st_size);
  auto begin = std::min(from, size);
  auto skip = size - begin > max_read;
  if (skip)
    begin = size - max_read;
  auto text = read_range(*file, path, begin, size - begin).value_or("");
  std::size_t at = 0;
  if (skip) {
    // The first line is most likely cut; without a line end it is all we have.
    auto end = text.find('\n');
    at = end == text.npos ? 0 : end + 1;
    result.push_back(concat("[", begin + at - from,
                            " bytes are left out; the complete log is in ",
                            path.string(), "]\n"));
  }
  for (auto end = text.find('\n', at); end != text.npos;
       end = text.find('\n', at)) {
    result.push_back(text.substr(at, end + 1 - at));
    at = end + 1;
  }
  if (skip && at == 0) {
    result.push_back(text + '\n');
    at = text.size();
  }
  from = begin + at;
  return result;
}

std::uint64_t host_memory() {
  return static_cast<std::uint64_t>(read_memory().total) * 1024;
}

std::vector<wandb_item> host_stats::sample() {
  std::vector<wandb_item> result;
  std::ifstream in{"/proc/stat"};
  std::string cpu;
  std::array<std::uint64_t, 8> ticks{}; // user nice system idle iowait ...
  in >> cpu;
  for (auto& x : ticks)
    in >> x;
  auto total = std::accumulate(ticks.begin(), ticks.end(), std::uint64_t{0});
  auto busy = total - ticks[3] - ticks[4];
  if (total_ != 0 && total > total_ && busy >= busy_)
    add(result, "cpu",
        100.0 * static_cast<double>(busy - busy_)
          / static_cast<double>(total - total_));
  busy_ = busy;
  total_ = total;
  if (auto x = read_memory(); x.total > 0)
    add(result, "memory_percent", 100.0 * (x.total - x.available) / x.total);
  add(result, "proc.memory.rssMB", resident_mb());
  add(result, "proc.cpu.threads", threads());
  auto network = read_traffic();
  add(result, "network.recv", network.received);
  add(result, "network.sent", network.sent);
  return result;
}

} // namespace troupe::internal
