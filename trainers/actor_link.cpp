#include "troupe/trainers/actor_link.hpp"

#include "troupe/runtime/report/report.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

actor_link::actor_link(caf::actor_system& system, network_thread* network,
                       agent_link args)
  : system_(system), network_(network), self_(system, network),
    args_(std::move(args)), store_(system, args_) {}

expected<void> actor_link::report(rank_report x, bool wait) {
  auto index = x.index;
  if (!wait)
    activity()->reported.store(index + 1);
  under_way_.push_back(
    request(self_, args_.agent, caf::infinite,
            internal::report{args_.attempt, std::move(x), wait}));
  TROUPE_TRY_VOID(receive(wait ? 0 : max_reports_ahead));
  args_.control->reported(index);
  return {};
}

expected<void> actor_link::log(loop_event x) {
  log_event message{args_.attempt, std::move(x)};
  if (++logged_ < max_events_ahead) {
    send_anonymous(args_.agent, std::move(message));
    return {};
  }
  logged_ = 0;
  auto shown = activity();
  activity_scope here{shown->asks_driver};
  return ask<void>(std::move(message));
}

expected<void> actor_link::drain() {
  if (!under_way_.empty())
    send_anonymous(args_.agent, reports_awaited{args_.attempt, args_.rank});
  return receive(0);
}

expected<void> actor_link::barrier() {
  TROUPE_TRY_VOID(join(meeting_kind::barrier, std::string{}));
  return {};
}

expected<std::string> actor_link::broadcast(expected<std::string> bytes) {
  return join(meeting_kind::broadcast, std::move(bytes));
}

expected<std::string> actor_link::join(meeting_kind kind,
                                       expected<std::string> payload) {
  join_barrier message{args_.attempt, args_.rank, barriers_++, kind, {}, {}};
  if (payload)
    message.payload = std::move(*payload);
  else
    message.refusal = {payload.error().code,
                       cut_reason(std::move(payload.error().message))};
  TROUPE_TRY(auto answer, ask<barrier_released>(std::move(message)));
  return std::move(answer.payload);
}

expected<std::vector<reported_checkpoint>> actor_link::reported_checkpoints() {
  TROUPE_TRY_VOID(drain());
  auto shown = activity();
  activity_scope here{shown->asks_driver};
  std::vector<reported_checkpoint> result;
  for (get_checkpoints next;; next.first = result.back().index + 1) {
    TROUPE_TRY(auto answer, ask<checkpoint_list>(next));
    for (auto& x : answer.entries)
      result.push_back(x.unpacked());
    if (!answer.more || result.empty())
      return result;
  }
}

expected<bool> actor_link::has_checkpoint(const std::string& name) {
  TROUPE_TRY_VOID(drain());
  auto shown = activity();
  activity_scope here{shown->asks_driver};
  return ask<checkpoint_list>(get_checkpoints{0, name})
    .map([](const checkpoint_list& x) { return !x.entries.empty(); });
}

bool actor_link::stop_requested() const noexcept {
  return args_.control->stop_requested();
}

std::optional<stop_info> actor_link::stop_info() const {
  return args_.control->stop_info();
}

void actor_link::on_abort(std::function<void(const error&)> f) {
  args_.control->on_end(std::move(f));
}

void actor_link::note_stop(std::optional<stop_notice>& x) {
  if (x)
    args_.control->preempt({x->kind, std::move(x->reason),
                            std::chrono::system_clock::time_point{
                              std::chrono::milliseconds{x->deadline_ms}}},
                           x->index);
}

expected<caf::actor> actor_link::open_mailbox(const internal::open_mailbox& x,
                                              const postbox_actor& box) {
  return ask<caf::actor>(x, box);
}

template <class Answer, class... Message>
expected<Answer> actor_link::ask(Message... message) {
  return request_answer<Answer>(*self_, args_, caf::infinite,
                                std::move(message)...);
}

expected<void> actor_link::receive(std::size_t left) {
  auto explain = [this](const caf::error& reason) {
    return request_error(args_, reason);
  };
  while (under_way_.size() > left) {
    auto oldest = std::move(under_way_.front());
    under_way_.pop_front();
    TROUPE_TRY(auto committed,
               answer_of<report_committed>(std::move(oldest), explain));
    note_stop(committed.stop);
  }
  return {};
}

} // namespace troupe::internal
