#include "troupe/trainers/tracking_handle.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <exception>
#include <vector>

#include "troupe/callbacks/encoding/png.hpp"
#include "troupe/callbacks/tracking/record_reader.hpp"
#include "troupe/runtime/checkpoint/copy_files.hpp"
#include "troupe/runtime/storage/file_copy.hpp"
#include "troupe/runtime/storage/held_folder.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe {

using namespace internal;

namespace {

metrics as_values(const metrics& values) {
  metrics result;
  result.add_group("v", values);
  return result;
}

/// *name* as one path component.
std::string file_name(std::string name) {
  std::ranges::replace_if(
    name,
    [](unsigned char c) { return !std::isalnum(c) && c != '-' && c != '_'; },
    '_');
  return name;
}

std::string joined(const std::vector<double>& numbers) {
  std::string result;
  for (auto x : numbers) {
    if (!result.empty())
      result += ' ';
    append_number(result, x);
  }
  return result;
}

struct distribution {
  double min = 0, max = 0, sum = 0, sum_squares = 0;
  std::vector<double> limits, counts;
};

distribution distribution_of(std::span<const double> values, int buckets) {
  std::vector<double> finite;
  std::ranges::copy_if(values, std::back_inserter(finite),
                       [](double x) { return std::isfinite(x); });
  distribution result;
  if (finite.empty())
    return result;
  auto [lowest, highest] = std::ranges::minmax_element(finite);
  result.min = *lowest;
  result.max = *highest;
  auto count = result.min < result.max ? std::max(buckets, 1) : 1;
  auto width = (result.max - result.min) / count;
  for (int i = 1; i < count; ++i)
    result.limits.push_back(result.min + width * i);
  result.limits.push_back(result.max);
  result.counts.resize(result.limits.size());
  for (auto x : finite) {
    result.sum += x;
    result.sum_squares += x * x;
    auto bucket = std::ranges::lower_bound(result.limits, x);
    ++result.counts[static_cast<std::size_t>(bucket - result.limits.begin())];
  }
  return result;
}

/// *path* relative to the run's folder *run*; empty if it is not inside.
fs::path inside(const fs::path& path, const fs::path& run) {
  auto relative = path.lexically_relative(run);
  return relative.empty() || *relative.begin() == ".." ? fs::path{} : relative;
}

/// The run's folder; nothing is created if it was renamed or replaced.
held_folder folder_of_run(const train_context& context) {
  return value_or_throw(
    held_folder::open(context.run_path(), context.facts().run_inode));
}

} // namespace

tracking_handle::tracking_handle(train_context& context,
                                 const tracking_options& options)
  : context_(context.rank() == 0 ? &context : nullptr),
    exceptions_(std::uncaught_exceptions()) {
  send(event_kind::tracker_start, {{"project", options.project},
                                   {"experiment", options.experiment},
                                   {"display_name", options.name}});
}

tracking_handle::~tracking_handle() {
  if (!active())
    return;
  auto status = run_status_kind::finished;
  if (auto stop = context_->stop_info())
    status = stop->kind == stop_info::kind_type::preempted
               ? run_status_kind::preempted
               : run_status_kind::aborted;
  else if (std::uncaught_exceptions() > exceptions_)
    status = run_status_kind::errored;
  try {
    finish(status);
  } catch (const train_error&) {
    // The run is ending; its own status says how.
  }
}

void tracking_handle::log_params(const metrics& values) {
  send(event_kind::tracker_params, as_values(values));
}

void tracking_handle::log(const metrics& values, std::int64_t step) {
  auto fields = as_values(values);
  fields["step"] = step;
  next_step_ = step + 1;
  send(event_kind::tracker_log, std::move(fields));
}

void tracking_handle::log(const metrics& values) {
  log(values, next_step_);
}

void tracking_handle::log_text(const std::string& name, const std::string& text,
                               std::int64_t step) {
  send(event_kind::tracker_text,
       {{"name", name}, {"text", text}, {"step", step}});
}

void tracking_handle::log_image(const std::string& name,
                                const image_view& image, std::int64_t step) {
  if (!active())
    return;
  check_process();
  auto bytes = value_or_throw(
    encode_png(image.width, image.height, image.channels, image.pixels));
  auto folder = value_or_throw(folder_of_run(*context_).folder("media"));
  auto begin =
    concat(file_name(name), '_', step, '_', context_->attempt(), '_');
  std::string file;
  do // Another handle of the loop may have written some.
    file = concat(begin, images_++, ".png");
  while (value_or_throw(folder.look_up(file)).exists());
  value_or_throw(folder.replace_file(file, bytes));
  send(event_kind::tracker_image, {{"name", name},
                                   {"step", step},
                                   {"file", "media/" + file},
                                   {"width", image.width},
                                   {"height", image.height},
                                   {"channels", image.channels}});
}

void tracking_handle::log_histogram(const std::string& name,
                                    std::span<const double> values,
                                    std::int64_t step, int buckets) {
  if (!active())
    return;
  auto x = distribution_of(values, buckets);
  send(event_kind::tracker_histogram, {{"name", name},
                                       {"step", step},
                                       {"min", x.min},
                                       {"max", x.max},
                                       {"sum", x.sum},
                                       {"sum_squares", x.sum_squares},
                                       {"limits", joined(x.limits)},
                                       {"counts", joined(x.counts)}});
}

void tracking_handle::log_artifact(const fs::path& path,
                                   const std::string& name) {
  if (!active())
    return;
  check_process();
  boost::system::error_code code;
  auto source = fs::canonical(path, code);
  if (code)
    throw train_error{storage_error("read", path, code.value())};
  auto shown = name.empty() ? source.filename().string() : name;
  auto run = context_->run_path();
  auto kept = inside(source, run);
  if (kept.empty()) {
    kept = (fs::path{"artifacts"} / shown).lexically_normal();
    if (inside(run / kept, run / "artifacts").empty())
      throw train_error{
        {ec::invalid_argument,
         "artifact name '" + shown
           + "' is not a relative path below the run's folder"}};
    value_or_throw(folder_of_run(*context_).make_folders(kept.parent_path()));
    value_or_throw(look_up(source).and_then([&](const file_status& x) {
      return x.is_folder() ? copy_files(source, run / kept)
                           : copy_file(source, run / kept, copy_sync::no);
    }));
  }
  send(event_kind::tracker_artifact,
       {{"name", shown}, {"file", kept.string()}});
}

void tracking_handle::finish(run_status_kind status) {
  send(event_kind::tracker_finish, {{"status", to_string(status)}});
  context_ = nullptr;
}

void tracking_handle::check_process() const {
  if (!process_.is_here())
    throw train_error{
      {ec::invalid_argument,
       concat("rank ", context_->rank(),
              ": a tracking handle was called in a process that the train loop "
              "forked")}};
}

void tracking_handle::send(std::string_view kind, metrics fields) {
  if (active())
    context_->log({std::string{kind}, std::move(fields)});
}

} // namespace troupe
