#include "troupe/callbacks/tracking/sink_feed.hpp"

#include <algorithm>

#include <unistd.h>

#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/process/secrets.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/append_file.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/unix_time.hpp"

namespace troupe::internal {

namespace {

/// Most bytes of the journal that are held in memory at once.
constexpr std::uint64_t max_held_bytes = 4 * 1024 * 1024;

/// How often, and how long, a tracker must have failed on one record before the
/// record is refused for it. A server that restarts, with its database, needs a
/// minute or two.
constexpr int min_suspect_failures = 5;
constexpr auto min_suspect_time = std::chrono::minutes{2};
constexpr int max_doublings = 9; ///< Of that time: 17 hours.

bool is_end(const tracker_record& x) {
  return std::holds_alternative<run_end_record>(x.content);
}

/// Whether *hints*, what the loop has set before *next*, are those that a sink
/// starts with: not as long as only the begin of attempts has come.
bool are_final(const tracking_hints& hints,
               const std::optional<tracker_record>& next) {
  return !hints.project.empty() || !hints.experiment.empty()
         || !hints.display_name.empty()
         || (next && !std::holds_alternative<attempt_record>(next->content));
}

sink_result transient(error reason) {
  return sink_fails(sink_failure::kind::transient, std::move(reason));
}

} // namespace

sink_feed::sink_feed(std::shared_ptr<sink> target, tracked_run run,
                     const tracker_options& options, note_function note)
  : target_(std::move(target)), run_(std::move(run)),
    max_batch_(
      std::clamp<std::size_t>(options.max_batch, 1, target_->max_batch())),
    retry_(options.retry), note_(std::move(note)), limit_(max_batch_) {}

std::optional<sink_feed::clock::time_point>
sink_feed::pump(clock::time_point now) {
  if (blocked_)
    return std::nullopt;
  try {
    return pump_once(now);
  } catch (const std::exception& x) {
    return threw(x.what(), now);
  } catch (...) {
    return threw("an exception of an unknown type", now);
  }
}

std::optional<sink_feed::clock::time_point>
sink_feed::pump_once(clock::time_point now) {
  // Those before a record whose file cannot be looked up need not wait for it.
  if (auto ok = read(); !ok && (held_.empty() || awaits_names()))
    return fail(ok.error(), now);
  if (!is_saved_) {
    if (auto ok = save(); !ok)
      return fail(ok.error(), now);
    end_trouble();
  }
  if (held_.empty() || awaits_names())
    return std::nullopt;
  if (auto ok = send(); !ok)
    return handle(ok.error(), now);
  pass_notes_on();
  end_trouble();
  alone_failures_ = 0;
  suspect_since_.reset();
  throws_ = 0;
  limit_ = std::min(max_batch_, limit_ * 2);
  return now;
}

void sink_feed::end_trouble() {
  if (std::exchange(trouble_, {}))
    note_("tracker " + target_->name() + " takes records again");
  retry_.reset();
}

expected<void> sink_feed::read() {
  at_end_ = false;
  if (!reader_) {
    TROUPE_TRY_VOID(find_place());
    TROUPE_TRY(auto offset, resume_offset(position_, run_.path));
    position_.offset = offset;
    TROUPE_TRY(auto reader,
               record_reader::open(run_.path, offset, position_.hints,
                                   target_->ranks()));
    reader_.emplace(std::move(reader));
  }
  // Other lines count towards the limit of bytes, but at least one record is
  // read: the position moves with records only.
  while (held_.empty() || awaits_names()
         || (held_.size() < max_batch_
             && reader_->offset() - position_.offset < max_held_bytes)) {
    TROUPE_TRY(auto record, reader_->next());
    note_names(record);
    if (!record) {
      at_end_ = true;
      return {};
    }
    held_.push_back(std::move(*record));
    statuses_.push_back(reader_->hints().status);
  }
  return {};
}

void sink_feed::note_names(const std::optional<tracker_record>& next) {
  auto& hints = reader_->hints();
  if (!names_ && are_final(hints, next))
    names_ = hints;
}

// A tracker may get records twice; an unreadable position would block it for
// good.
expected<void> sink_feed::find_place() {
  auto path = file(".offset");
  auto saved = load_position(path);
  if (saved) {
    is_resumed_ = saved->has_value();
    if (*saved)
      position_ = std::move(**saved);
    return {};
  }
  if (saved.error().code != ec::corrupt)
    return tl::unexpected{saved.error()};
  if (left_)
    return failure(ec::stopped, "the run is over");
  auto aside = file(".offset.damaged");
  boost::system::error_code code;
  fs::rename(path, aside, code);
  if (code)
    return tl::unexpected{storage_error("rename", path, code.value())};
  note_(concat("tracker ", target_->name(),
               " gets the run from the beginning again: ",
               saved.error().message, ", and is kept as ", aside.string()));
  return {};
}

sink_result sink_feed::send() {
  in_log_ = false;
  if (!started_) {
    TROUPE_TRY_VOID(open());
  }
  auto end = std::ranges::find_if(held_, is_end);
  auto count = static_cast<std::size_t>(end - held_.begin());
  if (end != held_.end()
      && (count == 0 || (count <= limit_ && target_->finish_writes_all())))
    return send_end(count);
  return send_records(std::min(count, limit_));
}

bool sink_feed::awaits_names() const {
  return !started_ && !is_resumed_ && !names_;
}

sink_result sink_feed::open() {
  if (!is_resumed_) {
    position_.hints = *names_;
    position_.hints.status.reset(); // No record of it has been taken.
  }
  auto& hints = position_.hints;
  run_.project = hints.project;
  run_.experiment = hints.experiment;
  run_.display_name = hints.display_name;
  run_.attempt = held_.front().attempt;
  TROUPE_TRY_VOID(
    call_sink(*target_, [&] { return target_->start(run_, position_.state); }));
  started_ = true;
  is_resumed_ = true;
  pass_notes_on();
  // Before the first record, so that after a restart it finds the same run.
  position_.state = target_->state();
  if (auto ok = save(); !ok)
    return transient(ok.error());
  return {};
}

void sink_feed::pass_notes_on() {
  for (auto& text : target_->take_notes())
    note_("tracker " + target_->name() + ": " + redacted(text));
}

sink_result sink_feed::send_records(std::size_t count) {
  (void) failpoint("sink_feed.log");
  in_log_ = true;
  TROUPE_TRY_VOID(call_sink(*target_, [&] {
    return target_->log({held_.data(), count});
  }));
  in_log_ = false;
  suspects_refused_ = 0;
  return taken(count);
}

sink_result sink_feed::send_end(std::size_t before) {
  auto& record = held_[before];
  auto status = std::get<run_end_record>(record.content).status;
  TROUPE_TRY_VOID(
    call_sink(*target_, [&] { return target_->finish(status, record.time); }));
  started_ = false; // Another driver may resume the run.
  return taken(before + 1);
}

sink_result sink_feed::taken(std::size_t count) {
  auto& last = held_[count - 1];
  auto line_end = line_end_at(run_.path / run_layout::journal, last.end);
  position_.offset = last.end;
  position_.time_us = unix_us(last.time);
  position_.attempt = last.attempt;
  position_.line_end = line_end.value_or(std::string{});
  position_.state = target_->state();
  position_.hints.status = statuses_[count - 1];
  auto end = static_cast<std::ptrdiff_t>(count);
  held_.erase(held_.begin(), held_.begin() + end);
  statuses_.erase(statuses_.begin(), statuses_.begin() + end);
  if (auto ok = save(); !ok)
    return transient(ok.error());
  return {};
}

std::optional<sink_feed::clock::time_point>
sink_feed::handle(const sink_failure& x, clock::time_point now) {
  auto end = std::ranges::find_if(held_, is_end);
  auto sent = std::min(static_cast<std::size_t>(end - held_.begin()), limit_);
  // Only `log` takes records.
  auto in_log = std::exchange(in_log_, false);
  auto took_some = in_log && x.accepted > 0;
  if (took_some) {
    auto count = std::min(x.accepted, sent);
    (void) taken(count);
    pass_notes_on();
    sent -= count;
    alone_failures_ = 0;
    suspects_refused_ = 0;
    suspect_since_.reset();
    end_trouble();
  }
  if (x.what == sink_failure::kind::permanent) {
    block(x.reason);
    return std::nullopt;
  }
  if (!started_ && x.what == sink_failure::kind::rejected) {
    block(
      {x.reason.code,
       "it refuses the run itself, with or without records: " + x.reason.message
         + "; the next driver of the run, or troupe sync, tries again"});
    return std::nullopt;
  }
  if (!in_log || sent == 0 || !is_refused(x, sent, now)) {
    if (took_some) // It is slow, perhaps on purpose, but not down.
      return now + retry_.next(x.retry_after);
    // One that says when it takes more does not need smaller batches.
    if (in_log && x.reason.code == ec::timeout && !x.retry_after && !x.suspect
        && sent > 1)
      limit_ = sent / 2;
    return fail(x.reason, now, x.retry_after);
  }
  if (sent > 1) {
    limit_ = sent / 2;
  } else {
    if (auto ok = reject(held_.front(), x.reason); !ok)
      return fail(ok.error(), now);
    (void) taken(1);
    suspect_since_.reset(); // Another record has its own time.
    retry_.reset();
  }
  return now;
}

bool sink_feed::is_refused(const sink_failure& x, std::size_t sent,
                           clock::time_point now) {
  if (x.what == sink_failure::kind::rejected)
    return true;
  if (!x.suspect)
    return false;
  if (!suspect_since_)
    suspect_since_ = now;
  if (sent > 1) { // The next call says whether it is the first of them.
    limit_ = 1;
    return false;
  }
  // A file is the record's own. A server may fail whatever it gets: the more
  // often in a row, the less it says of the record.
  auto is_file = x.reason.code == ec::storage;
  auto doublings = is_file ? 0 : std::min(suspects_refused_, max_doublings);
  if (++alone_failures_ < min_suspect_failures
      || now - *suspect_since_ < min_suspect_time * (1 << doublings))
    return false;
  alone_failures_ = 0;
  suspects_refused_ += is_file ? 0 : 1;
  return true;
}

// How far the sink came is unknown: it starts again from the saved position.
std::optional<sink_feed::clock::time_point>
sink_feed::threw(const char* what, clock::time_point now) {
  reader_.reset();
  held_.clear();
  statuses_.clear();
  at_end_ = false;
  names_.reset();
  position_ = {};
  is_saved_ = true;
  started_ = false;
  if (++throws_ < max_throws)
    return fail({ec::storage, what}, now);
  block(
    {ec::storage, concat("it failed ", throws_, " times in a row: ", what)});
  return std::nullopt;
}

void sink_feed::block(error reason) {
  blocked_ = true;
  reason.message = redacted(reason.message); // A sink may throw anything.
  note_("tracker " + target_->name()
        + " gets no more records: " + reason.message);
  trouble_ = std::move(reason);
}

std::optional<sink_feed::clock::time_point>
sink_feed::fail(error reason, clock::time_point now,
                std::optional<std::chrono::seconds> asked) {
  reason.message = redacted(reason.message);
  if (!trouble_)
    note_(concat("tracker ", target_->name(),
                 " does not take records at present, and is tried again: ",
                 reason.message));
  trouble_ = std::move(reason);
  return now + retry_.next(asked);
}

expected<void> sink_feed::reject(const tracker_record& x, const error& reason) {
  TROUPE_TRY(auto lines, line_reader::open(run_.path / run_layout::journal,
                                           position_.offset));
  std::string text;
  while (lines.offset() < x.end) {
    TROUPE_TRY(auto line, lines.next());
    if (!line)
      break;
    text = *line; // The last line is the record's.
  }
  auto path = file(".rejected.jsonl");
  if (left_)
    return failure(ec::stopped, "the run is over");
  TROUPE_TRY(auto out, record_file::open(path));
  TROUPE_TRY_VOID(out.append(text));
  TROUPE_TRY_VOID(out.commit());
  // A tracker may refuse each image of a run: ten times as many are news.
  if (++refusals_ == next_refusal_note_) {
    next_refusal_note_ *= 10;
    auto what = refusals_ == 1 ? "a record, which is"
                               : concat(refusals_, " records, which are");
    note_(concat("tracker ", target_->name(), " refused ", what, " kept in ",
                 path.string(), ": ", redacted(reason.message)));
  }
  return {};
}

expected<void> sink_feed::save() {
  (void) failpoint("sink_feed.save");
  is_saved_ = false;
  if (left_)
    return failure(ec::stopped, "the run is over");
  return save_position(position_, file(".offset")).map([this] {
    is_saved_ = true;
  });
}

expected<std::uint64_t> sink_feed::unsent() const {
  TROUPE_TRY(auto offset, reader_ ? reader_->offset() : unread());
  TROUPE_TRY(auto rest, record_reader::open(run_.path, offset, {}, 0));
  auto waits = reader_ ? awaits_names() : offset == 0;
  for (std::uint64_t count = held_.size();; ++count) {
    TROUPE_TRY(auto record, rest.next());
    waits = waits && !are_final(rest.hints(), record);
    if (!record)
      return waits ? 0 : count;
  }
}

std::string sink_feed::refused() const {
  auto path = file(".rejected.jsonl");
  auto found = look_up(path);
  if (found && !found->exists())
    return {};
  auto at = " is kept in " + path.string();
  auto lines = line_reader::open(path, 0);
  if (!lines)
    return "what it refused" + at;
  for (std::uint64_t count = 0;; ++count)
    if (auto line = lines->next(); !line || !*line)
      return counted(count, "record") + (count == 1 ? " was" : " were")
             + " refused; the journal's text" + at + ", which may be removed";
}

std::string sink_feed::left_in_files() const {
  auto left = call_sink(*target_, [&] { return target_->offline(run_); });
  if (!left)
    return "what is in files only is unknown: "
           + redacted(left.error().message);
  return *left && !(*left)->wanted ? (*left)->text : std::string{};
}

expected<std::uint64_t> sink_feed::unread() const {
  auto saved = load_position(file(".offset"));
  if (!saved && saved.error().code == ec::corrupt)
    return 0; // As in `find_place`.
  if (!saved)
    return tl::unexpected{saved.error()};
  return *saved ? resume_offset(**saved, run_.path) : 0;
}

fs::path sink_feed::file(const char* ending) const {
  return run_.path / run_layout::sinks / (target_->name() + ending);
}

} // namespace troupe::internal
