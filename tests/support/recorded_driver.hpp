#pragma once

#include <deque>
#include <memory>
#include <vector>

#include <caf/typed_event_based_actor.hpp>
#include <caf/typed_response_promise.hpp>

#include "tests/support/answer_oldest.hpp"
#include "troupe/actors/protocol/error_code.hpp"

namespace troupe::internal::test {

/// What a worker group has sent to its driver.
struct driver_record {
  using promise = caf::typed_response_promise<report_committed>;

  std::vector<attempt_started> started;
  std::vector<attempt_ended> ended;
  std::vector<attempt_failed> failed;
  std::vector<attempt_warning> warnings;
  std::vector<epoch_advanced> progress;
  std::vector<commit_batch> batches;
  std::vector<log_event> logged;
  std::vector<preempt_run> preempts;
  std::vector<open_mailbox> mailboxes;
  std::deque<promise> uncommitted; ///< One per waiting batch.

  std::optional<stop_notice> stop; ///< What the next answers say of leaving.
};

using recorded_driver_actor =
  driver_actor::extend<caf::result<void>(answer_oldest)>;

/// A driver that decides nothing. It answers a batch when the test says so.
inline recorded_driver_actor::behavior_type
recorded_driver(recorded_driver_actor::pointer self,
                std::shared_ptr<driver_record> record) {
  return {
    [](start_run) {},
    [record](const answer_oldest& how) {
      auto& x =
        record->batches[record->batches.size() - record->uncommitted.size()];
      auto promise = std::move(record->uncommitted.front());
      record->uncommitted.pop_front();
      std::optional<std::string> folder;
      if (auto name = x.batch.checkpoint_name())
        folder = "/checkpoints/" + *name;
      if (how.refusal)
        promise.deliver(to_caf(how.refusal));
      else
        promise.deliver(report_committed{x.batch.index, folder, record->stop});
    },
    [](abort_run) {},
    [record](const preempt_run& x) { record->preempts.push_back(x); },
    [](const finish_run&) {},
    [](const resize_callback_queue&) {},
    [](get_status) { return run_status{}; },
    [](follow_run, const run_observer_actor&) { return run_status{}; },
    [](follow_ranks, const rank_observer_actor&) { return ranks_changed{}; },
    [record](const open_mailbox& x, const postbox_actor& box) {
      record->mailboxes.push_back(x);
      return caf::actor_cast<caf::actor>(box);
    },
    [record](const attempt_started& x) { record->started.push_back(x); },
    [record](const attempt_ended& x) { record->ended.push_back(x); },
    [record](const attempt_failed& x) { record->failed.push_back(x); },
    [record](const attempt_warning& x) { record->warnings.push_back(x); },
    [record](const epoch_advanced& x) { record->progress.push_back(x); },
    [self, record](const commit_batch& x) -> caf::result<report_committed> {
      record->batches.push_back(x);
      auto promise = self->make_response_promise<report_committed>();
      record->uncommitted.push_back(promise);
      return promise;
    },
    [record](const log_event& x) { record->logged.push_back(x); },
    [](get_checkpoints) {
      return checkpoint_list{
        {{checkpoint::from_directory("/checkpoints/a"), {{"x", 1}}, 4, 2}}};
    },
    [](const fail_run&) {},
  };
}

} // namespace troupe::internal::test
