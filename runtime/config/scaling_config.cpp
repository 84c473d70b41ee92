#include "troupe/runtime/config/scaling_config.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include <dlfcn.h>

#include "troupe/runtime/config/rank_shares.hpp"
#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/process/shared_segment.hpp"
#include "troupe/runtime/process/usable_cores.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/whole_number.hpp"

namespace troupe::internal {

namespace {

/// What NVIDIA's management library, a part of the driver, counts. Unlike CUDA
/// it keeps nothing that would break in a process forked later.
int ask_driver() {
  auto* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return 0;
  auto* begin = reinterpret_cast<int (*)()>(::dlsym(library, "nvmlInit_v2"));
  auto* count = reinterpret_cast<int (*)(unsigned*)>(
    ::dlsym(library, "nvmlDeviceGetCount_v2"));
  auto* end = reinterpret_cast<int (*)()>(::dlsym(library, "nvmlShutdown"));
  if (!begin || !count || !end || begin() != 0)
    return 0;
  unsigned cards = 0;
  if (count(&cards) != 0)
    cards = 0;
  end();
  return static_cast<int>(cards);
}

} // namespace

int count_cards(const std::string& devices, const std::function<int()>& ask) {
  int result = 0;
  boost::system::error_code code; // If it cannot be read, it has no cards.
  for (fs::directory_iterator i{devices, code}, end; !code && i != end;
       i.increment(code)) {
    auto name = i->path().filename().string();
    constexpr std::string_view card = "nvidia";
    result += name.starts_with(card)
              && is_digits(std::string_view{name}.substr(card.size()));
  }
  return result > 0 ? result : ask();
}

host_resources
local_resources(const std::optional<std::string>& visible_devices) {
  auto gpus = gpus_shown_with(visible_devices).size();
  return {static_cast<double>(own_cores().count), static_cast<double>(gpus)};
}

std::optional<std::string> own_visible_devices() {
  auto value = std::getenv("CUDA_VISIBLE_DEVICES");
  return value ? std::optional<std::string>{value} : std::nullopt;
}

std::vector<std::string>
gpus_shown_with(const std::optional<std::string>& variable) {
  return visible_gpus(variable, count_cards("/dev", ask_driver));
}

std::vector<std::string>
visible_gpus(const std::optional<std::string>& variable, int cards) {
  std::vector<std::string> result;
  if (!variable)
    for (int i = 0; i < cards; ++i)
      result.push_back(std::to_string(i));
  if (!variable || cards == 0)
    return result;
  std::string_view rest = *variable;
  while (!rest.empty()) {
    auto entry = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
    // A card is named by its number, or by an id of the card or of a part of
    // it, which only the driver can look up. CUDA skips blanks before a number
    // and ignores what follows its digits.
    std::string name{without_blanks(entry)};
    auto is_slice = name.starts_with("MIG-");
    if (is_slice && !result.empty())
      break;
    if (!is_slice && !name.starts_with("GPU-")) {
      name.resize(std::min(name.find_first_not_of("0123456789"), name.size()));
      auto number = whole_number<int>(name);
      if (!number || *number >= cards)
        break;
      name = std::to_string(*number);
    }
    if (std::ranges::find(result, name) != result.end())
      return {}; // CUDA shows none if one is named twice.
    result.push_back(std::move(name));
    if (is_slice)
      break; // A process sees no second one.
  }
  return result;
}

std::vector<int> gpus_of(const scaling_config& x, int local_rank) {
  auto each = static_cast<int>(claim_of(x).gpus);
  std::vector<int> result;
  for (int i = local_rank * each; i < (local_rank + 1) * each; ++i)
    result.push_back(i);
  return result;
}

std::string count_text(const worker_count& x) {
  return x.is_elastic() ? concat(x.min, " to ", x.max) : std::to_string(x.max);
}

std::string option_text(const worker_count& x) {
  return x.is_elastic() ? concat(x.min, ':', x.max) : std::to_string(x.max);
}

std::optional<worker_count> parse_count(std::string_view text) noexcept {
  auto number = [](std::string_view digits) -> std::optional<int> {
    auto result = whole_number<int>(digits);
    return result && *result >= 0 ? result : std::nullopt;
  };
  auto colon = text.find(':');
  auto first = number(text.substr(0, colon));
  auto last = colon == text.npos ? first : number(text.substr(colon + 1));
  if (!first || !last || (colon != text.npos && (*first < 1 || *first > *last)))
    return std::nullopt;
  return worker_count{*first, *last};
}

std::string text_of_hosts(const scaling_config& x) {
  return joined(x.hosts, ",");
}

std::vector<host_share> spread_ranks(const scaling_config& x) {
  auto ranks = std::max(x.num_workers.max, 1);
  auto agents = static_cast<std::size_t>(std::max(x.agents, 0));
  auto hosts = std::min(agents, max_hosts) + 1;
  std::vector<host_share> result;
  for (auto mine : deal_ranks(std::vector<int>(hosts, ranks), ranks))
    result.push_back({0, mine});
  number_ranks(result);
  return result;
}

namespace {

/// Ranks of this process are as many as `num_workers` says.
expected<void> check_workers_per_host(const scaling_config& x) {
  auto runs_here = x.num_workers == 0 || x.where == placement::in_process;
  if (x.workers_per_host == 0 || !runs_here
      || x.workers_per_host == x.num_workers.max)
    return {};
  return failure(ec::invalid_config,
                 concat("scaling.workers_per_host is ", x.workers_per_host,
                        x.num_workers == 0
                          ? ", but with scaling.num_workers = 0 the loop "
                            "runs inline"
                          : ", but scaling.num_workers counts ranks that "
                            "are threads"));
}

expected<void> check_agents(const scaling_config& x) {
  if (x.agents == 0)
    return {};
  auto refuse = [&x](std::string why) {
    return failure(ec::invalid_config,
                   concat("scaling.agents is ", x.agents, std::move(why)));
  };
  if (x.agents < 0)
    return refuse(", but must be >= 0");
  if (x.num_workers == 0 || x.where == placement::in_process)
    return refuse(": other hosts have ranks that are processes only");
  return {};
}

/// The driver's own host may have no ranks.
std::size_t hosts_with_ranks(const std::vector<host_share>& shares) {
  return static_cast<std::size_t>(std::ranges::count_if(
    shares, [](const host_share& x) { return x.ranks > 0; }));
}

expected<void> check_most_hosts(const scaling_config& x,
                                const std::vector<host_share>& shares) {
  if (x.max_hosts == 0)
    return {};
  auto refuse = [&x](std::string why) {
    return failure(ec::invalid_config, concat("scaling.max_hosts is ",
                                              x.max_hosts, std::move(why)));
  };
  if (x.max_hosts < 0)
    return refuse(", but must be >= 0");
  if (x.workers_per_host == 0)
    return refuse(", but counts hosts with scaling.workers_per_host only");
  if (x.agents > 0)
    return refuse(", but scaling.agents says how many hosts may come");
  if (shares.size() < 2)
    return refuse(", but the run has one host: give scaling.hosts, or more "
                  "nodes of Slurm");
  if (auto hosts = hosts_with_ranks(shares);
      static_cast<std::size_t>(x.max_hosts) < hosts)
    return refuse(concat(", but the run has ", hosts, " hosts"));
  return {};
}

expected<void> check_host_limits(const scaling_config& x) {
  using namespace std::chrono_literals;
  if (x.join_timeout <= 0ms)
    return failure(ec::invalid_config,
                   concat("scaling.join_timeout must be > 0, got ",
                          duration_text(x.join_timeout)));
  // Exact: a rounded `duration_text` may be a value that is allowed.
  auto refuse = [](const char* name, std::chrono::milliseconds got,
                   std::string why) {
    return failure(ec::invalid_config,
                   concat("scaling.", name, " is ", got.count(),
                          " ms, but must be ", std::move(why)));
  };
  if (x.join_timeout > 24h * 365)
    return refuse("join_timeout", x.join_timeout, "at most a year");
  if (x.suspect_after < 2s)
    return refuse("suspect_after", x.suspect_after,
                  "at least 2 s: hosts send a sign of life each second");
  if (x.lost_after <= x.suspect_after)
    return refuse("lost_after", x.lost_after,
                  concat("longer than scaling.suspect_after, which is ",
                         x.suspect_after.count(), " ms"));
  if (x.lost_after > 24h)
    return refuse("lost_after", x.lost_after, "at most a day");
  return {};
}

expected<void> check_elastic(const scaling_config& x,
                             const std::vector<host_share>& shares) {
  auto& count = x.num_workers;
  auto hosts = hosts_with_ranks(shares);
  if (x.min_hosts < 0)
    return failure(ec::invalid_config,
                   concat("scaling.min_hosts must be >= 0, got ", x.min_hosts));
  if (x.min_hosts > 0 && x.workers_per_host == 0)
    return failure(ec::invalid_config,
                   concat("scaling.min_hosts is ", x.min_hosts,
                          ", but counts hosts with scaling.workers_per_host "
                          "only; else num_workers is a range, such as "
                          "{2, 8}"));
  if (static_cast<std::size_t>(x.min_hosts) > hosts)
    return failure(ec::invalid_config,
                   concat("scaling.min_hosts is ", x.min_hosts,
                          ", but the run has ", counted(hosts, "host")));
  TROUPE_TRY_VOID(check_most_hosts(x, shares));
  TROUPE_TRY_VOID(validate(count));
  if (!count.is_elastic())
    return {};
  auto refuse = [&count](std::string why) {
    return failure(
      ec::invalid_config,
      concat("scaling.num_workers is ", count_text(count), std::move(why)));
  };
  if (x.where == placement::in_process)
    return refuse(": ranks that are threads are one fixed number");
  if (shares.size() < 2)
    return refuse(
      ", but the run has one host: the number of ranks changes with "
      "that of hosts, so give one number, or scaling.hosts");
  return {};
}

} // namespace

expected<void> validate(const worker_count& x) {
  if (!x.is_elastic() || (x.min >= 1 && x.min < x.max))
    return {};
  return failure(ec::invalid_config,
                 concat("scaling.num_workers is ", count_text(x),
                        ": the first must be >= 1, and not above the second"));
}

expected<void> validate_counts(const scaling_config& x) {
  constexpr auto ranks = shared_segment::max_ranks;
  constexpr auto hosts = static_cast<int>(max_hosts);
  auto refuse = [](const char* name, int got, const char* whose, int limit,
                   const char* what) {
    return failure(ec::invalid_config,
                   concat("scaling.", name, " is ", got, ", but a ", whose,
                          " has at most ", limit, what));
  };
  if (x.workers_per_host > ranks)
    return refuse("workers_per_host", x.workers_per_host, "host", ranks,
                  " ranks");
  if (x.num_workers.max > ranks * hosts)
    return refuse("num_workers", x.num_workers.max, "run", ranks * hosts,
                  " ranks");
  if (x.agents > hosts)
    return refuse("agents", x.agents, "run", hosts, " agents");
  if (x.min_hosts > hosts)
    return refuse("min_hosts", x.min_hosts, "run", hosts, " hosts");
  if (x.max_hosts > hosts)
    return refuse("max_hosts", x.max_hosts, "run", hosts, " hosts");
  return {};
}

expected<void> validate(const scaling_config& x, const host_resources& host,
                        const std::vector<host_share>& shares) {
  TROUPE_TRY_VOID(validate_counts(x));
  if (x.workers_per_host < 0)
    return failure(ec::invalid_config,
                   concat("scaling.workers_per_host must be >= 0, got ",
                          x.workers_per_host));
  if (x.num_workers < 0)
    return failure(
      ec::invalid_config,
      concat("scaling.num_workers must be >= 0, got ", x.num_workers.max));
  TROUPE_TRY_VOID(check_workers_per_host(x));
  TROUPE_TRY_VOID(check_elastic(x, shares));
  TROUPE_TRY_VOID(check_agents(x));
  for (auto& share : shares)
    if (share.ranks > shared_segment::max_ranks)
      return failure(ec::invalid_config,
                     concat("scaling.num_workers is ", x.num_workers.max,
                            ", a host has at most ", shared_segment::max_ranks,
                            " ranks"));
  if (shares.size() > 1)
    TROUPE_TRY_VOID(check_host_limits(x));
  auto claim = claim_of(x);
  TROUPE_TRY_VOID(validate(claim));
  if (x.use_gpu && claim.gpus == 0)
    return failure(ec::invalid_config,
                   "scaling.use_gpu asks for GPUs and "
                   "scaling.resources_per_worker.gpus is 0");
  auto shortage = claim.shortage_on("this host", host, shares.front().ranks);
  if (!shortage.empty())
    return failure(ec::invalid_config, std::move(shortage));
  return {};
}

} // namespace troupe::internal
