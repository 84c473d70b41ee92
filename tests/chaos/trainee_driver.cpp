// The driver of a training that a campaign disturbs.
//
//   chaos_trainee --storage FOLDER --expected FOLDER [--NAME VALUE ...]
//   chaos_torch_trainee, the same
//
// Ends with 0 if the run finished, 3 if it failed, 4 if it was stopped, 5 if
// the run was refused, 6 if fit() threw, 7 if its failpoint is not one.

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <troupe/trackers.hpp>

#include "record.hpp"
#include "trainee.hpp"
#include "troupe/runtime/failpoint.hpp"

namespace troupe::chaos {

namespace {

/// Records each call.
class recorded_callback : public user_callback {
public:
  explicit recorded_callback(std::string file) : file_(std::move(file)) {}

  void before_run(const run_context& run) override {
    about("before_run", run).to(file_);
  }

  void after_report(const run_context& run, const std::vector<metrics>& values,
                    const std::optional<checkpoint>& data) override {
    std::string states;
    for (auto& x : values) {
      auto state = x.find("state");
      states += (states.empty() ? "[\"" : ",\"")
                + (state ? std::get<std::string>(state->variant()) : "") + '"';
    }
    about("after_report", run)
      .raw("states", states.empty() ? "[]" : states + ']')
      .text("checkpoint", data ? data->name() : "")
      .to(file_);
  }

  void after_exception(const run_context& run,
                       const std::map<int, rank_failure>& ranks) override {
    std::string text;
    for (auto& [rank, cause] : ranks)
      text += "rank " + std::to_string(rank) + ": " + to_string(cause) + "; ";
    about("after_exception", run).text("text", text).to(file_);
  }

  void after_run(const run_context& run, const result& outcome) override {
    about("after_run", run)
      .text("status", std::string{to_string(outcome.status)})
      .to(file_);
  }

private:
  static line about(const char* what, const run_context& run) {
    line result{what};
    result.text("run", run.id)
      .number("attempt", run.attempt)
      .number("index", run.report_index);
    return result;
  }

  std::string file_;
};

class arguments {
public:
  arguments(int argc, char** argv) {
    for (int i = 1; i + 1 < argc; i += 2)
      values_[argv[i]] = argv[i + 1];
  }

  std::string text(const std::string& name, const std::string& fallback = {}) {
    auto i = values_.find("--" + name);
    return i == values_.end() ? fallback : i->second;
  }

  int number(const std::string& name, int fallback) {
    auto value = text(name);
    return value.empty() ? fallback : std::atoi(value.c_str());
  }

private:
  std::map<std::string, std::string> values_;
};

plan to_plan(arguments& from) {
  plan x;
  x.expected = from.text("expected");
  x.seed = std::strtoull(from.text("seed", "1").c_str(), nullptr, 10);
  x.steps = from.number("steps", x.steps);
  x.every = from.number("every", x.every);
  x.step_us = from.number("step-us", x.step_us);
  x.bytes = from.number("bytes", x.bytes);
  x.fails_at = from.number("fails-at", x.fails_at);
  x.fails_by = from.text("fails-by");
  x.driver = static_cast<std::uint64_t>(::getpid());
  x.failpoint = from.text("rank-failpoint");
  x.token = from.text("token");
  x.leaves = from.text("leaves", "saving");
  // `init` reads them.
  x.on_hosts = from.number("agents", 0) != 0 || !from.text("hosts").empty();
  x.samples = from.number("samples", 0);
  return x;
}

scaling_config to_scaling(arguments& from) {
  scaling_config result;
  auto workers = from.number("workers", 2);
  result.num_workers = {from.number("fewest", workers), workers};
  result.workers_per_host = from.number("per-host", 0);
  result.min_hosts = from.number("fewest-hosts", 0);
  result.max_hosts = from.number("most-hosts", 0);
  if (from.text("resize") == "at once")
    result.resize = resize_policy::at_once;
  if (from.text("placement") == "in_process")
    result.where = placement::in_process;
  result.agents = from.number("agents", 0);
  result.join_timeout =
    std::chrono::milliseconds{from.number("join-timeout-ms", 120'000)};
  return result;
}

train_options to_options(arguments& from) {
  using std::chrono::milliseconds;
  train_options result;
  result.scaling = to_scaling(from);
  auto& run = result.run;
  run.agent_ticket = from.text("ticket");
  run.name = from.text("name", "run");
  run.storage_path = from.text("storage");
  run.failure.max_failures = from.number("max-failures", -1);
  if (auto keep = from.number("keep", 0))
    run.checkpoint.num_to_keep = keep;
  if (auto limit = from.number("report-timeout-ms", 0))
    run.report_timeout = milliseconds{limit};
  run.start_timeout = milliseconds{from.number("start-timeout-ms", 20'000)};
  run.stop_timeout = milliseconds{from.number("stop-timeout-ms", 5'000)};
  run.stop_grace = milliseconds{from.number("stop-grace-ms", 30'000)};
  run.exit_timeout = milliseconds{from.number("exit-timeout-ms", 3'000)};
  run.hang_timeout = milliseconds{from.number("hang-timeout-ms", 10'000)};
  run.report_page = from.number("report-page", 0) != 0;
  run.quiet = from.number("quiet", 1) != 0;
  // A removed folder stays removed: waiting a minute would not help.
  tracker_options tracking{.finish_timeout = milliseconds{5'000}};
  run.callbacks = {std::make_shared<recorded_callback>(from.text("expected")
                                                       + "/callbacks.jsonl")};
  run.trackers = {result_json_tracker({}, tracking),
                  mlflow_tracker({}, tracking)};
  if (from.number("tensorboard", 0) != 0)
    run.trackers.push_back(tensorboard_tracker({}, tracking));
  return result;
}

void record_result(const result& x, const std::string& file) {
  line out{"result"};
  out.text("status", std::string{to_string(x.status)})
    .number("attempts", x.attempts)
    .text("checkpoint", x.checkpoint ? x.checkpoint->name() : "")
    .number("code", x.error ? static_cast<std::uint64_t>(x.error->code) : 0)
    .text("error", x.error ? x.error->message : "");
  auto state = x.metrics.find("state");
  out.text("state", state ? std::get<std::string>(state->variant()) : "")
    .to(file);
}

int code_of(const result& x) {
  if (x.status == run_status_kind::finished)
    return 0;
  if (x.error && x.error->code == ec::conflict)
    return 5;
  return x.status == run_status_kind::errored ? 3 : 4;
}

} // namespace

} // namespace troupe::chaos

int main(int argc, char** argv) {
  using namespace troupe;
  using namespace troupe::internal;
  using namespace troupe::chaos;
  init(argc, argv);
  arguments from{argc, argv};
  if (auto spec = from.text("driver-failpoint"); !spec.empty())
    if (auto ok = internal::arm_failpoint(spec); !ok) {
      std::fprintf(stderr, "%s\n", ok.error().message.c_str());
      return 7;
    }
  if (from.number("ignore-sigpipe", 0) != 0)
    ::signal(SIGPIPE, SIG_IGN);
  auto results = from.text("expected") + "/results.jsonl";
  try {
    auto outcome = fit(to_plan(from), to_options(from));
    record_result(outcome, results);
    return code_of(outcome);
  } catch (const std::exception& problem) {
    line{"threw"}.text("text", problem.what()).to(results);
    return 6;
  }
}
