#include "troupe/actors/committer.hpp"

#include <cstddef>

#include "troupe/actors/protocol/error_code.hpp"

namespace troupe::internal {

namespace {

/// How large one page of a `checkpoint_list` may be.
constexpr std::size_t max_page_bytes = 1024 * 1024;

} // namespace

committer_actor::behavior_type committer(committer_actor::pointer self,
                                         committer_args args) {
  self->set_exception_handler(from_exception);
  return {
    [args](begin_attempt) -> caf::result<attempt_start> {
      auto start = args.store->begin_attempt();
      if (!start)
        return to_caf(start.error());
      return std::move(*start);
    },
    [args](const commit_batch& x) -> caf::result<report_committed> {
      auto committed = args.store->commit(x.attempt, x.batch);
      if (!committed)
        return to_caf(committed.error());
      return report_committed{x.batch.index, committed->data.path().string(),
                              std::nullopt};
    },
    [args](end_run& x) -> caf::result<void> {
      auto outcome = args.store->finish(x.status, std::move(x.reason));
      if (!outcome)
        return to_caf(outcome.error());
      args.monitor->prepare(std::move(*outcome));
      return caf::unit;
    },
    [args](const get_checkpoints& x) -> caf::result<checkpoint_list> {
      if (x.name.empty()) {
        auto page = args.store->checkpoints(x.first, max_page_bytes);
        return checkpoint_list{std::move(page.entries), page.more};
      }
      auto found = args.store->find_checkpoint(x.name);
      if (!found)
        return to_caf(found.error());
      checkpoint_list answer;
      if (*found)
        answer.entries.push_back(**found);
      return answer;
    },
  };
}

} // namespace troupe::internal
