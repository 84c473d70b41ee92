#pragma once

#include "troupe/actors/protocol/checkpoint_entries.hpp"
#include "troupe/actors/protocol/messages.hpp"

// How each message is written to the wire: its fields in order of declaration.

namespace troupe {

template <class Inspector>
bool inspect(Inspector& f, start_attempt& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("resume", x.resume),
                            f.field("first_report", x.first_report));
}

template <class Inspector>
bool inspect(Inspector& f, stop_attempt& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("reason", x.reason),
                            f.field("grace_ms", x.grace_ms));
}

template <class Inspector>
bool inspect(Inspector& f, preempt_attempt& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("reason", x.reason),
                            f.field("deadline_ms", x.deadline_ms));
}

template <class Inspector>
bool inspect(Inspector& f, attempt_started& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("world_size", x.world_size));
}

template <class Inspector>
bool inspect(Inspector& f, attempt_ended& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("stopped", x.stopped),
                            f.field("preempted", x.preempted));
}

template <class Inspector>
bool inspect(Inspector& f, attempt_failed& x) {
  return f.object(x).fields(
    f.field("attempt", x.attempt), f.field("started", x.started),
    f.field("reason", x.reason), f.field("ranks", x.ranks));
}

template <class Inspector>
bool inspect(Inspector& f, attempt_warning& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("text", x.text), f.field("waits", x.waits));
}

template <class Inspector>
bool inspect(Inspector& f, commit_batch& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("batch", x.batch));
}

template <class Inspector>
bool inspect(Inspector& f, batch_committed& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("index", x.index),
                            f.field("checkpoint", x.checkpoint));
}

template <class Inspector>
bool inspect(Inspector& f, hook_spec& x) {
  return f.object(x).fields(f.field("before_loop", x.before_loop),
                            f.field("after_loop", x.after_loop),
                            f.field("on_report", x.on_report));
}

template <class Inspector>
bool inspect(Inspector& f, loop_spec& x) {
  return f.object(x).fields(f.field("entry", x.entry), f.field("loop", x.loop),
                            f.field("config", x.config),
                            f.field("hooks", x.hooks));
}

template <class Inspector>
bool inspect(Inspector& f, start_loop& x) {
  return f.object(x).fields(f.field("facts", x.facts),
                            f.field("resume", x.resume),
                            f.field("loop", x.loop));
}

template <class Inspector>
bool inspect(Inspector& f, trainer_ready& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("rank", x.rank), f.field("pid", x.pid),
                            f.field("host", x.host));
}

template <class Inspector>
bool inspect(Inspector& f, stop_loop& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("reason", x.reason));
}

template <class Inspector>
bool inspect(Inspector& f, loop_ended& x) {
  return f.object(x).fields(
    f.field("attempt", x.attempt), f.field("rank", x.rank),
    f.field("reason", x.reason), f.field("stopped", x.stopped));
}

template <class Inspector>
bool inspect(Inspector& f, report& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("value", x.value),
                            f.field("waits", x.waits));
}

template <class Inspector>
bool inspect(Inspector& f, stop_notice& x) {
  return f.object(x).fields(f.field("index", x.index),
                            f.field("reason", x.reason),
                            f.field("deadline_ms", x.deadline_ms));
}

template <class Inspector>
bool inspect(Inspector& f, report_committed& x) {
  return f.object(x).fields(f.field("index", x.index),
                            f.field("checkpoint", x.checkpoint),
                            f.field("stop", x.stop));
}

template <class Inspector>
bool inspect(Inspector& f, reports_awaited& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("rank", x.rank));
}

template <class Inspector>
bool inspect(Inspector& f, join_barrier& x) {
  return f.object(x).fields(
    f.field("attempt", x.attempt), f.field("rank", x.rank),
    f.field("sequence", x.sequence), f.field("broadcast", x.broadcast),
    f.field("payload", x.payload), f.field("refusal", x.refusal));
}

template <class Inspector>
bool inspect(Inspector& f, barrier_released& x) {
  return f.object(x).fields(f.field("payload", x.payload));
}

template <class Inspector>
bool inspect(Inspector& f, log_event& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("event", x.event));
}

template <class Inspector>
bool inspect(Inspector& f, get_checkpoints& x) {
  return f.object(x).fields(f.field("first", x.first), f.field("name", x.name));
}

template <class Inspector>
bool inspect(Inspector& f, checkpoint_entry& x) {
  return f.object(x).fields(
    f.field("path", x.path), f.field("values", x.values),
    f.field("index", x.index), f.field("attempt", x.attempt));
}

/// Checkpoints travel as the paths of their folders.
template <class Inspector>
bool inspect(Inspector& f, result& x) {
  auto latest = [&x]() -> std::optional<std::string> {
    return x.checkpoint ? std::optional{x.checkpoint->path().string()}
                        : std::nullopt;
  };
  auto set_latest = [&x](const std::optional<std::string>& path) {
    x.checkpoint.reset();
    if (path)
      x.checkpoint = checkpoint::from_directory(*path);
    return true;
  };
  auto path = [&x] { return x.path.string(); };
  auto set_path = [&x](const std::string& text) {
    x.path = text;
    return true;
  };
  auto best = [&x] { return entries_of(x.best_checkpoints); };
  auto set_best = [&x](std::vector<checkpoint_entry> entries) {
    x.best_checkpoints = checkpoints_of(std::move(entries));
    return true;
  };
  return f.object(x).fields(
    f.field("status", x.status), f.field("metrics", x.metrics),
    f.field("checkpoint", latest, set_latest),
    f.field("best_checkpoints", best, set_best),
    f.field("path", path, set_path), f.field("error", x.error),
    f.field("attempts", x.attempts));
}

template <class Inspector>
bool inspect(Inspector& f, checkpoint_list& x) {
  return f.object(x).fields(f.field("entries", x.entries),
                            f.field("more", x.more));
}

template <class Inspector>
bool inspect(Inspector& f, store_set& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("key", x.key), f.field("value", x.value));
}

template <class Inspector>
bool inspect(Inspector& f, store_get& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("key", x.key));
}

template <class Inspector>
bool inspect(Inspector& f, store_add& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("key", x.key), f.field("amount", x.amount));
}

template <class Inspector>
bool inspect(Inspector& f, store_check& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("keys", x.keys));
}

template <class Inspector>
bool inspect(Inspector& f, store_wait& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("keys", x.keys));
}

template <class Inspector>
bool inspect(Inspector& f, store_erase& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("key", x.key));
}

template <class Inspector>
bool inspect(Inspector& f, store_size& x) {
  return f.object(x).fields(f.field("attempt", x.attempt));
}

template <class Inspector>
bool inspect(Inspector& f, store_compare_set& x) {
  return f.object(x).fields(
    f.field("attempt", x.attempt), f.field("key", x.key),
    f.field("expected_value", x.expected_value), f.field("desired", x.desired));
}

template <class Inspector>
bool inspect(Inspector& f, rank_launched& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("rank", x.rank), f.field("pid", x.pid));
}

template <class Inspector>
bool inspect(Inspector& f, rank_exited& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("rank", x.rank), f.field("cause", x.cause));
}

template <class Inspector>
bool inspect(Inspector& f, rank_launch_failed& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("rank", x.rank),
                            f.field("reason", x.reason));
}

template <class Inspector>
bool inspect(Inspector& f, begin_attempt& x) {
  return f.object(x).fields();
}

template <class Inspector>
bool inspect(Inspector& f, attempt_begun& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("first_report", x.first_report),
                            f.field("resume", x.resume));
}

template <class Inspector>
bool inspect(Inspector& f, storage_lost& x) {
  return f.object(x).fields(f.field("reason", x.reason));
}

template <class Inspector>
bool inspect(Inspector& f, finish_run& x) {
  return f.object(x).fields(f.field("status", x.status),
                            f.field("reason", x.reason));
}

template <class Inspector>
bool inspect(Inspector& f, commit_checkpoint& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("batch", x.batch));
}

template <class Inspector>
bool inspect(Inspector& f, before_run& x) {
  return f.object(x).fields(f.field("run", x.run));
}

template <class Inspector>
bool inspect(Inspector& f, after_report& x) {
  return f.object(x).fields(
    f.field("index", x.index), f.field("attempt", x.attempt),
    f.field("values", x.values), f.field("checkpoint", x.checkpoint));
}

template <class Inspector>
bool inspect(Inspector& f, after_exception& x) {
  return f.object(x).fields(f.field("attempt", x.attempt),
                            f.field("ranks", x.ranks));
}

template <class Inspector>
bool inspect(Inspector& f, after_run& x) {
  return f.object(x).fields(f.field("outcome", x.outcome));
}

template <class Inspector>
bool inspect(Inspector& f, callback_done& x) {
  return f.object(x).fields(
    f.field("seconds", x.seconds), f.field("abort", x.abort),
    f.field("failures", x.failures), f.field("times", x.times),
    f.field("skipped", x.skipped));
}

template <class Inspector>
bool inspect(Inspector& f, start_run& x) {
  return f.object(x).fields();
}

template <class Inspector>
bool inspect(Inspector& f, stop_run& x) {
  return f.object(x).fields(f.field("reason", x.reason));
}

template <class Inspector>
bool inspect(Inspector& f, get_status& x) {
  return f.object(x).fields();
}

template <class Inspector>
bool inspect(Inspector& f, preempt_run& x) {
  return f.object(x).fields(f.field("reason", x.reason),
                            f.field("grace_ms", x.grace_ms));
}

} // namespace troupe
