#pragma once

#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/checkpoint_files.hpp"
#include "tests/support/played_ranks.hpp"
#include "tests/support/recorded_callback.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/actors/callback_chain.hpp"
#include "troupe/actors/committer.hpp"
#include "troupe/actors/driver.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/store/journal_reader.hpp"

namespace troupe::internal::test {

/// A run of two ranks with all its actors and a folder on disk; only the ranks
/// are played.
class driver_test : public testing::Test {
protected:
  using ms = std::chrono::milliseconds;

  driver_test() {
    config.name = "r";
    config.storage_path = folder / "runs";
    config.start_timeout = std::chrono::seconds{60};
  }

  ~driver_test() override {
    (void) arm_failpoint("");
    EXPECT_EQ(store ? refused_events() : 0, refused)
      << "the actors of a run contradict each other";
  }

  /// Spawns the actors of the run; `start_run` comes later.
  void spawn() {
    store = run_store::open(config).value();
    driver_args args;
    args.store = store;
    args.monitor = monitor;
    args.first = store->begin_attempt().value();
    args.failure = config.failure;
    args.stop = config.stop;
    args.stop_timeout = config.stop_timeout;
    args.stop_grace = config.stop_grace;
    args.longest_grace = longest_grace(config);
    group_plan plan;
    plan.run_name = "r";
    plan.run_path = store->path().string();
    plan.world = {2, 2};
    plan.start_timeout = config.start_timeout;
    plan.stop_timeout = config.stop_timeout;
    plan.exit_timeout = config.exit_timeout;
    plan.report_timeout = config.report_timeout;
    ranks.attempt = args.first.attempt;
    ranks.spawn_group(plan);
    args.group = ranks.group;
    args.committer = storage =
      system.spawn(committer, committer_args{store, monitor});
    std::vector<std::shared_ptr<user_callback>> classes{callback};
    if (second)
      classes.push_back(second);
    auto list =
      std::make_shared<callback_list>(classes, config.callback_errors);
    args.context.name = "r";
    args.context.id = store->description().id;
    args.cursor =
      std::make_shared<callback_cursor>(callback_cursor::open(*store).value());
    driver_start begin;
    begin.world_size = 2;
    begin.callback_queue = static_cast<std::size_t>(config.callback_queue);
    begin.callbacks = callbacks =
      system.spawn(callback_runner, callback_runner_args{list, control});
    if (!actors.empty())
      begin.callbacks = system.spawn(
        callback_chain,
        callback_chain_args{callbacks, actors, config.callback_errors});
    driver =
      system.spawn(troupe::internal::driver, std::move(args), std::move(begin));
    order_receiver::connect(control, [this](run_order x) {
      std::visit([&](auto& what) { send_anonymous(driver, what); }, x.what);
    });
    system.settle();
  }

  void start() {
    spawn();
    send_anonymous(driver, start_run{});
    system.settle();
  }

  /// Starts the run; every rank is up.
  void run() {
    start();
    ranks.rise_all(2);
  }

  void stop() {
    send_anonymous(driver, abort_run{"the test is over"});
    system.settle();
  }

  void finish() {
    ranks.finish(0);
    ranks.finish(1);
  }

  /// Rank 1 is killed, rank 0 by the group.
  void kill() {
    ranks.kill(1, SIGSEGV);
    ranks.kill(0, SIGKILL);
  }

  /// Both ranks report *x*; the answer is rank 0's.
  played_ranks::report_answer report(std::uint64_t index) {
    auto answer = ranks.report(0, index, {{"x", index}});
    ranks.report(1, index, {{"x", index}});
    return answer;
  }

  /// Both ranks report, rank 0 with a checkpoint `c<index>`.
  played_ranks::report_answer report_checkpoint(std::uint64_t index) {
    auto part = stage(store->path(), ranks.attempt, index, 0,
                      "c" + std::to_string(index), {{"model", "weights"}});
    auto answer = ranks.report(0, index, {{"x", index}}, part.value());
    ranks.report(1, index, {{"x", index}});
    return answer;
  }

  std::string checkpoint_path(const std::string& name) const {
    return (store->path() / "checkpoints" / name).string();
  }

  run_status status() { return monitor->status(); }

  result outcome() {
    if (monitor->is_over())
      return monitor->wait().unpacked();
    ADD_FAILURE() << "the run is not over";
    return {};
  }

  /// The journal: `0`, `1 c1` for batches and their checkpoints, the kinds of
  /// events.
  std::vector<std::string> journal_lines() {
    std::vector<std::string> lines;
    auto reader = journal_reader::open(store->folder().journal_file()).value();
    while (auto entry = reader.next().value()) {
      if (auto row = std::get_if<journaled_batch>(&*entry))
        lines.push_back(std::to_string(row->index)
                        + (row->checkpoint.empty() ? "" : " ")
                        + row->checkpoint);
      else
        lines.push_back(std::get<journal_event>(*entry).kind);
    }
    std::erase(lines, "state");
    return lines;
  }

  /// In the journal, which a test may have removed.
  int refused_events() const {
    auto text = bytes_of(store->folder().journal_file());
    auto count = 0;
    for (std::size_t at = 0; (at = text.find("event_refused", at)) != text.npos;
         ++at)
      ++count;
    return count;
  }

  temporary_folder folder;
  int refused = 0; ///< Events that the test makes the run refuse.
  run_config config;
  std::shared_ptr<run_store> store;
  std::shared_ptr<run_monitor> monitor = std::make_shared<run_monitor>();
  std::shared_ptr<recorded_callback> callback =
    std::make_shared<recorded_callback>();
  std::shared_ptr<recorded_callback>
    second; ///< After `callback`; may be unset.
  stepped_system system;
  driver_actor driver;
  committer_actor storage;
  run_observer_actor callbacks;
  run_control control{run_control::receiver{}}; ///< Of the callbacks.
  std::vector<named_callback_actor> actors;     ///< Callbacks after the class.
  played_ranks ranks{system};
};

} // namespace troupe::internal::test
