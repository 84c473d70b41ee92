#include "troupe/callbacks/console_progress.hpp"

#include <climits>

#include "troupe/callbacks/status_text.hpp"

namespace troupe::internal {

namespace {

/// How often a waiting `print` checks whether to hurry.
constexpr std::chrono::milliseconds room_tick{100};

console_style choose(const console_progress::options& x) {
  if (x.style != console_style::automatic)
    return x.style;
  return is_live_terminal(x.progress_fd) ? console_style::live
                                         : console_style::plain;
}

bool same_state(const run_status& a, const run_status& b) {
  return a.state == b.state && a.attempt == b.attempt
         && a.world_size == b.world_size;
}

} // namespace

console_progress::console_progress(options opts)
  : progress_{opts.progress_fd}, output_{opts.output_fd}, style_(choose(opts)) {
}

console_progress::~console_progress() {
  erase();
  flush_partial();
}

void console_progress::update(const run_status& status, time_point now) {
  std::scoped_lock guard{mutex_};
  if (finished_ || style_ == console_style::quiet)
    return;
  status_ = status;
  status_time_ = now;
  show(now);
}

void console_progress::tick(time_point now) {
  std::scoped_lock guard{mutex_};
  if (!finished_ && status_)
    show(now);
}

void console_progress::print(std::string_view text) {
  if (style_ == console_style::quiet)
    return;
  while (!hurried_ && !wait_for_room(output_.fd, room_tick)) {
  }
  std::scoped_lock guard{mutex_};
  if (finished_) {
    output_.write(text);
    return;
  }
  partial_ += text;
  auto whole = partial_.rfind('\n') + 1; // 0 if there is no newline
  bool too_long = partial_.size() - whole > max_partial_line;
  if (whole == 0 && !too_long)
    return;
  erase();
  if (too_long) {
    flush_partial();
  } else {
    output_.write(partial_.substr(0, whole));
    partial_.erase(0, whole);
  }
  draw();
}

void console_progress::note(std::string_view line) {
  std::scoped_lock guard{mutex_};
  if (style_ == console_style::quiet)
    return;
  erase();
  write_line(line);
  draw();
}

void console_progress::finish(const run_summary& summary, time_point now) {
  std::scoped_lock guard{mutex_};
  if (finished_ || style_ == console_style::quiet)
    return;
  if (style_ == console_style::plain && status_)
    show_plain(now, true);
  erase();
  flush_partial();
  progress_.write(to_string(summary));
  finished_ = true;
}

bool console_progress::is_finished() {
  std::scoped_lock guard{mutex_};
  return finished_;
}

void console_progress::show(time_point now) {
  if (style_ == console_style::live)
    show_live(now);
  else
    show_plain(now, false);
}

void console_progress::show_live(time_point now) {
  bool changed = !shown_ || !same_state(*shown_, *status_);
  if (!changed && now - shown_time_ < redraw_interval)
    return;
  shown_ = status_;
  shown_time_ = now;
  std::chrono::duration<double> since_status = now - status_time_;
  line_ = live_text(*status_, status_->elapsed_s + since_status.count(),
                    terminal_columns(progress_.fd) - 1);
  draw();
}

void console_progress::show_plain(time_point now, bool all) {
  bool changed = !shown_ || !same_state(*shown_, *status_);
  bool reported =
    status_->last_report && status_->reports != (shown_ ? shown_->reports : 0);
  // The last report of a state is shown before the next state.
  bool due = !reported_at_ || now - *reported_at_ >= report_interval;
  if (reported && (changed || all || due)) {
    write_line(report_text(*status_, line_columns));
    reported_at_ = now;
    epoch_shown_at_ = now;
  } else if (!changed) {
    show_epoch(now);
    return;
  }
  if (changed) {
    write_line(state_text(*status_));
    epoch_shown_at_ = now;
  }
  shown_ = status_;
}

void console_progress::show_epoch(time_point now) {
  if (!status_->progress || now - epoch_shown_at_ < progress_interval
      || status_->progress == shown_->progress)
    return;
  write_line(progress_text(*status_->progress));
  epoch_shown_at_ = now;
  shown_->progress = status_->progress;
}

void console_progress::draw() {
  if (style_ != console_style::live || finished_ || line_.empty()
      || !is_writable_now(progress_.fd))
    return;
  // Some terminals wrap when the last column is filled.
  auto columns = terminal_columns(progress_.fd) - 1;
  progress_.write("\r" + fit_to_line(line_, columns) + "\x1b[K");
  drawn_ = true;
}

void console_progress::erase() {
  if (drawn_)
    progress_.write("\r\x1b[K");
  drawn_ = false;
}

void console_progress::write_line(std::string_view text) {
  progress_.write("troupe: " + fit_to_line(text, INT_MAX) + "\n");
}

void console_progress::flush_partial() {
  if (partial_.empty())
    return;
  if (partial_.back() != '\n')
    partial_ += '\n';
  output_.write(partial_);
  partial_.clear();
}

} // namespace troupe::internal
