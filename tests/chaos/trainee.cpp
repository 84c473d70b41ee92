// The training that a campaign disturbs. It records what it was promised
// outside the run's folder, where no fault reaches it.

#include "trainee.hpp"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "record.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/trainers/rank_link.hpp"

namespace troupe::chaos {

namespace {

// -- the model

/// The ranks that save a checkpoint.
struct savers {
  std::uint64_t attempt = 0;
  int world = 1;
};

/// The file of rank *rank*, or of the model (-1), in a checkpoint of *by*.
std::string content_of(const model& x, const savers& by, int rank, int bytes) {
  auto out = std::to_string(by.attempt) + ' ' + std::to_string(by.world) + ' '
             + std::to_string(rank) + ' ' + std::to_string(x.step) + ' '
             + hex(x.state) + '\n';
  auto value = x.state + static_cast<std::uint64_t>(rank + 1);
  for (int i = 0; i < bytes / 8; ++i) {
    value = mixed(value);
    char raw[8];
    for (int k = 0; k < 8; ++k)
      raw[k] = static_cast<char>(value >> (8 * k));
    out.append(raw, 8);
  }
  return out;
}

std::string file_of(int rank) {
  return rank < 0 ? "model.bin" : "ranks/" + std::to_string(rank) + ".bin";
}

/// Creates *path* and its missing parents for this user alone. After a folder
/// was renamed, that is the run's folder, which the next run takes.
void make_private(const fs::path& path) {
  if (::mkdir(path.c_str(), 0700) == 0 || errno != ENOENT)
    return;
  make_private(path.parent_path());
  ::mkdir(path.c_str(), 0700);
}

void save(const fs::path& folder, const std::string& name,
          const std::string& bytes) {
  auto path = folder / name;
  make_private(path.parent_path());
  std::ofstream out{path.string(), std::ios::binary};
  out << bytes << std::flush;
  if (!out)
    throw std::runtime_error{"the model cannot be written to " + path.string()};
}

std::string bytes_of(const fs::path& path) {
  std::ifstream in{path.string(), std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

struct restored {
  model value;
  std::string problem; ///< Why the checkpoint is not what one attempt saved.
};

/// Only for learners that have weights.
constexpr auto weights_file = "weights.bin";

restored restore(const checkpoint& from, int bytes) {
  restored result;
  auto text = bytes_of(from.path() / file_of(-1));
  unsigned long long attempt = 0, step = 0, state = 0;
  int world = 0, rank = 0;
  if (std::sscanf(text.c_str(), "%llu %d %d %llu %llx", &attempt, &world, &rank,
                  &step, &state)
      != 5) {
    result.problem = "model.bin cannot be read";
    return result;
  }
  result.value = {step, state};
  for (int i = -1; i < world; ++i)
    if (bytes_of(from.path() / file_of(i))
        != content_of(result.value, {attempt, world}, i, bytes))
      result.problem =
        file_of(i) + " is not that of attempt " + std::to_string(attempt);
  auto weights = bytes_of(from.path() / weights_file);
  if (!weights.empty() && sum_of(weights) != state)
    result.problem = "weights.bin is not that of its model";
  return result;
}

// -- the loop

void pass_time(int us) {
  timespec rest{us / 1'000'000, us % 1'000'000 * 1000L};
  while (nanosleep(&rest, &rest) != 0) {
  }
}

/// Whether this process is the one that removes *token*.
bool claim(const std::string& token) {
  return !token.empty() && ::unlink(token.c_str()) == 0;
}

void fail(train_context& context, const plan& x, const std::string& record) {
  line{"fault"}
    .number("attempt", context.attempt())
    .text("by", x.fails_by)
    .to(record);
  if (x.fails_by == "throw")
    throw std::runtime_error{"the loop was asked to fail"};
  if (x.fails_by == "exit")
    std::exit(3);
  if (x.fails_by.starts_with("driver "))
    ::kill(static_cast<pid_t>(x.driver), std::atoi(x.fails_by.c_str() + 7));
  else
    ::raise(std::atoi(x.fails_by.c_str()));
}

/// The samples of a step that this rank trains on.
std::vector<std::uint64_t> samples_of(const train_context& context,
                                      const plan& x) {
  std::vector<std::uint64_t> result;
  for (auto i = context.rank(); i < x.samples; i += context.world_size())
    result.push_back(static_cast<std::uint64_t>(i));
  return result;
}

/// What all ranks train on in the step after *step*: the sum over all samples,
/// of which each rank adds its own; or what rank 0 has.
std::uint64_t data_of(train_context& context, const plan& x,
                      std::uint64_t step) {
  if (x.samples == 0)
    return context.broadcast_from_rank_zero(
      context.rank() == 0 ? mixed(x.seed + step) : 0);
  auto first = x.seed + step * static_cast<std::uint64_t>(x.samples);
  std::int64_t mine = 0;
  for (auto i : samples_of(context, x))
    mine += static_cast<std::int64_t>(mixed(first + i) >> 8); // No overflow.
  auto add = [&](std::int64_t amount) {
    auto sum = internal::rank_access{context}.link().store().add(
      "step/" + std::to_string(step), amount);
    if (!sum)
      throw std::runtime_error{sum.error().message};
    return *sum;
  };
  add(mine);
  context.barrier();
  return static_cast<std::uint64_t>(add(0));
}

metrics values_of(const model& x, int rank) {
  metrics result{{"step", x.step},
                 {"rank", rank},
                 {"loss", 1.0 / static_cast<double>(x.step)},
                 {"state", hex(x.state)}};
  if (x.step > 6) // A column that appears later: tables are rewritten.
    result["late"] = x.step;
  return result;
}

void report(train_context& context, const plan& x, const model& now,
            const learner& trained, bool saves) {
  auto values = values_of(now, context.rank());
  if (x.samples > 0) {
    std::string samples;
    for (auto i : samples_of(context, x))
      samples += std::to_string(i) + ' ';
    values["samples"] = samples;
  }
  if (!saves) {
    context.report(std::move(values));
    return;
  }
  auto files = context.new_checkpoint();
  auto add = [&](int rank) {
    save(files.path(), file_of(rank),
         content_of(now, {context.attempt(), context.world_size()}, rank,
                    x.bytes));
  };
  add(context.rank());
  if (context.rank() == 0) {
    add(-1);
    if (auto weights = trained.weights(); !weights.empty())
      save(files.path(), weights_file, weights);
  }
  context.report(std::move(values), std::move(files));
}

void train(train_context& context, const plan& x, const std::string& record,
           model now) {
  auto index = internal::rank_access{context}.facts().first_report;
  auto heard = false;
  auto trained = make_learner(context, x);
  if (auto& last = context.checkpoint())
    trained->load(bytes_of(last->path() / weights_file));
  auto every = static_cast<std::uint64_t>(x.every);
  while (now.step < static_cast<std::uint64_t>(x.steps)) {
    if (static_cast<int>(now.step) == x.fails_at && context.rank() == 0
        && claim(x.token))
      fail(context, x, record);
    auto data = data_of(context, x, now.step);
    now = {now.step + 1, trained->train(now, data)};
    pass_time(x.step_us);
    // The last report before a preemption has a checkpoint.
    auto leaves = x.leaves == "saving" && context.stop_requested();
    auto saves = every > 0 && (leaves || now.step % every == 0);
    auto step = [&](const char* what) {
      line{what}
        .number("attempt", context.attempt())
        .number("index", index)
        .number("step", now.step)
        .number("saves", saves ? 1 : 0)
        .text("state", hex(now.state))
        .to(record);
    };
    step("sent");
    report(context, x, now, *trained, saves);
    step("acked");
    ++index;
    auto stop = context.stop_info();
    if (stop && stop->kind == stop_info::kind_type::preempted && !heard) {
      heard = true;
      line{"heard"}
        .number("attempt", context.attempt())
        .number("index", index)
        .text("reason", stop->reason)
        .to(record);
    }
    if (leaves || (heard && x.leaves == "at once"))
      return;
  }
}

std::string record_of(const plan& x, int rank) {
  return x.expected + "/rank_" + std::to_string(rank) + ".jsonl";
}

/// Whether process *pid* runs this program and is not a zombie.
bool is_alive(int pid) {
  auto name = [](const std::string& who) {
    return bytes_of("/proc/" + who + "/comm");
  };
  auto stat = bytes_of("/proc/" + std::to_string(pid) + "/stat");
  auto state = stat.rfind(") ");
  return state != std::string::npos && stat[state + 2] != 'Z'
         && stat[state + 2] != 'X' && name(std::to_string(pid)) == name("self");
}

/// Processes of earlier attempts that still exist, as text.
std::string earlier_ranks(train_context& context, const plan& x) {
  std::string result;
  for (int rank = 0; rank < context.world_size(); ++rank) {
    std::ifstream records{record_of(x, rank)};
    for (std::string text; std::getline(records, text);) {
      int pid = 0;
      unsigned long long attempt = 0;
      auto run = text.find(context.run_id());
      if (std::sscanf(text.c_str(),
                      R"({"what":"begun","pid":%d,"attempt":%llu)", &pid,
                      &attempt)
            == 2
          && run != std::string::npos && attempt < context.attempt()
          && !internal::rank_access{context}.facts().in_process
          && pid != ::getpid() && is_alive(pid))
        result +=
          std::to_string(pid) + " of attempt " + std::to_string(attempt) + "; ";
    }
  }
  return result;
}

} // namespace

void loop(train_context& context, const plan& x) {
  auto record = record_of(x, context.rank());
  auto earlier = x.on_hosts ? std::string{} : earlier_ranks(context, x);
  restored from;
  auto& last = context.checkpoint();
  if (last)
    from = restore(*last, x.bytes);
  line{"begun"}
    .number("attempt", context.attempt())
    .number("world", static_cast<std::uint64_t>(context.world_size()))
    .text("run", context.run_id())
    .text("alive", earlier)
    .number("first", internal::rank_access{context}.facts().first_report)
    .text("resume", last ? last->name() : "")
    .text("problem", from.problem)
    .number("step", from.value.step)
    .text("state", hex(from.value.state))
    .to(record);
  if (!x.failpoint.empty() && claim(x.token))
    (void) internal::arm_failpoint(x.failpoint);
  auto left = [&](const char* why, const std::string& text) {
    line{why}
      .number("attempt", context.attempt())
      .text("text", text)
      .to(record);
  };
  try {
    train(context, x, record, from.value);
  } catch (const run_stopped& reason) {
    left("stopped", reason.what());
    throw;
  } catch (const std::exception& reason) {
    left("failed", reason.what());
    throw;
  }
  left("returned", "");
}

std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

std::uint64_t sum_of(const std::string& bytes) {
  std::uint64_t result = bytes.size();
  for (unsigned char x : bytes)
    result = mixed(result ^ x);
  return result;
}

} // namespace troupe::chaos
