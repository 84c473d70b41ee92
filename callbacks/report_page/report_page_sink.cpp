#include "troupe/callbacks/report_page/report_page_sink.hpp"

#include <algorithm>
#include <variant>

namespace troupe::internal {

namespace {

/// The share of its time that a page may be written in, as one of so many.
constexpr int writing_share = 20;

bool has_checkpoint(const tracker_record& x) {
  auto row = std::get_if<journaled_batch>(&x.content);
  return row && !row->checkpoint.empty();
}

bool begins_attempt(const tracker_record& x) {
  return std::holds_alternative<attempt_record>(x.content);
}

} // namespace

report_page_sink::report_page_sink(clock now) : now_(std::move(now)) {}

sink_result report_page_sink::start(const tracked_run& run,
                                    const std::string&) {
  cancelled_ = run.cancelled;
  auto page = report_page::open(run.path);
  if (!page)
    return file_result(tl::unexpected{page.error()});
  page_.emplace(std::move(*page));
  due_ = false;
  next_write_ = {};
  return {};
}

sink_result report_page_sink::log(std::span<const tracker_record> records) {
  due_ = due_ || std::ranges::any_of(records, has_checkpoint);
  if (std::ranges::any_of(records, begins_attempt)
      || (due_ && now_() >= next_write_))
    return write();
  return {};
}

sink_result report_page_sink::finish(run_status_kind,
                                     std::chrono::system_clock::time_point) {
  return write();
}

sink_result report_page_sink::write() {
  auto begin = now_();
  auto result = file_result(page_->write(cancelled_));
  auto end = now_();
  next_write_ = end + (end - begin) * (writing_share - 1);
  if (result)
    due_ = false;
  return result;
}

std::unique_ptr<sink> make_report_page_sink(const std::string&) {
  return std::make_unique<report_page_sink>();
}

} // namespace troupe::internal
