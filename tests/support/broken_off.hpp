#pragma once

#include <csignal>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/temporary_folder.hpp"
#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe::internal::test {

/// Delivers records to a file sink as `sink_feed` does, in processes that are
/// killed while they write. Each process resumes from the position and the
/// state that its predecessor saved.
class broken_off {
public:
  using maker = std::function<std::unique_ptr<sink>()>;

  broken_off(maker make, tracked_run run, std::vector<tracker_record> records)
    : make_(std::move(make)), run_(std::move(run)),
      records_(std::move(records)) {}

  /// Most records per call.
  std::size_t batch = 7;

  /// Runs a process that SIGKILL ends at the *n*-th pass of failpoint *name*.
  /// Returns whether it reached the end of the records instead.
  bool run_until(const std::string& name, unsigned n) {
    return run([&] { (void) arm_failpoint(name + ":" + std::to_string(n)); },
               [](pid_t) {});
  }

  /// Runs a process that SIGKILL ends once *size* has reached *bytes*, wherever
  /// it is then. Returns the same.
  bool run_until_size(const std::function<std::uint64_t()>& size,
                      std::uint64_t bytes) {
    return run([] {},
               [&](pid_t child) {
                 siginfo_t ended{};
                 while (size() < bytes && ended.si_pid == 0)
                   ::waitid(P_PID, static_cast<id_t>(child), &ended,
                            WEXITED | WNOHANG | WNOWAIT);
                 ::kill(child, SIGKILL);
               });
  }

private:
  template <class Prepare, class Watch>
  bool run(Prepare prepare, Watch watch) {
    auto child = ::fork();
    if (child == 0) {
      prepare();
      ::_exit(feed() ? 0 : 1);
    }
    watch(child);
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
      throw std::runtime_error{"the sink failed"};
    return WIFEXITED(status);
  }

  bool feed() {
    std::size_t at = 0;
    std::string state;
    if (fs::exists(position_)) {
      auto saved = bytes_of(position_);
      at = std::stoul(saved);
      state = saved.substr(saved.find('\n') + 1);
    }
    auto target = make_();
    if (!target->start(run_, state) || !save(at, *target))
      return false;
    while (at < records_.size()) {
      auto count = std::min(batch, records_.size() - at);
      if (!target->log({records_.data() + at, count}))
        return false;
      at += count;
      if (!save(at, *target))
        return false;
    }
    return target->finish(run_status_kind::finished, records_.back().time)
      .has_value();
  }

  bool save(std::size_t at, const sink& target) {
    return replace_file(position_, std::to_string(at) + '\n' + target.state())
      .has_value();
  }

  maker make_;
  tracked_run run_;
  std::vector<tracker_record> records_;
  temporary_folder folder_;
  fs::path position_ = folder_ / "position";
};

} // namespace troupe::internal::test
