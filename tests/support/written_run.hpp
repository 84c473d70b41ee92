#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/saved_state.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/store/journal_line.hpp"
#include "troupe/runtime/store/run_description.hpp"
#include "troupe/runtime/store/saved_run.hpp"

namespace troupe::internal::test {

/// A run's folder, written line by line with times chosen by the test.
class written_run {
public:
  /// 2026-01-01T00:00:00Z
  static constexpr std::int64_t begin_us = 1'767'225'600'000'000;

  struct row {
    std::uint64_t index = 0;
    double seconds = 0; ///< Since the beginning.
    std::vector<metrics> values;
    std::vector<double> step_s;
    std::string checkpoint;
    double wait_s = 0;
  };

  explicit written_run(const std::string& config = {}) {
    fs::create_directories(folder_ / "run/logs");
    auto folder = held_folder::open(path()).value();
    (void) save_description(folder,
                            describe_run(folder, "run", config).value());
    add([](std::string& out) { append_header_line(out); });
  }

  fs::path path() const { return folder_ / "run"; }

  std::uint64_t attempt = 0;

  void begin_attempt(double seconds, std::uint64_t first_report,
                     const std::string& resume = {}) {
    metrics fields{{"first_report", first_report}};
    if (!resume.empty())
      fields["resume"] = resume;
    event(seconds, "attempt_begun", fields);
  }

  void report(const row& x) {
    report_batch batch{.index = x.index, .values = packed(x.values)};
    batch.step_s = x.step_s;
    batch.wait_s = x.wait_s;
    add([&](std::string& out) {
      append_batch_line(out, attempt, time_us(x.seconds), batch, x.checkpoint,
                        0.02);
    });
  }

  void event(double seconds, const std::string& kind,
             const metrics& fields = {}) {
    add([&](std::string& out) {
      append_event_line(out, attempt, time_us(seconds), kind, fields);
    });
  }

  /// Appends *text* to the journal unchanged.
  void damage(const std::string& text) {
    add([&](std::string& out) { out += text; });
  }

  void log(int rank, const std::string& text) {
    write_bytes(path() / "logs" / ("rank_" + std::to_string(rank) + ".log"),
                text);
  }

  void state(const saved_run& x) { (void) save_run(x, path()); }

  kept_checkpoint checkpoint_of(const std::string& name, std::uint64_t index,
                                const metrics& values) {
    return {checkpoint::from_directory(path() / "checkpoints" / name), values,
            index, attempt};
  }

private:
  static std::int64_t time_us(double seconds) {
    return begin_us + static_cast<std::int64_t>(seconds * 1e6);
  }

  template <class Write>
  void add(Write write) {
    std::string line;
    write(line);
    std::ofstream{(path() / "journal.jsonl").string(),
                  std::ios::binary | std::ios::app}
      << line;
  }

  temporary_folder folder_;
};

} // namespace troupe::internal::test
