#include "troupe/trainers/tracking_handle.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <exception>
#include <vector>

#include "troupe/callbacks/encoding/png.hpp"
#include "troupe/callbacks/tracking/loop_record.hpp"
#include "troupe/runtime/checkpoint/copy_files.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/file_copy.hpp"
#include "troupe/runtime/storage/held_folder.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe {

using namespace internal;

namespace {

/// *name* as one path component.
std::string file_name(std::string name) {
  std::ranges::replace_if(
    name,
    [](unsigned char c) { return !std::isalnum(c) && c != '-' && c != '_'; },
    '_');
  return name;
}

void distribute(logged_histogram& to, std::span<const double> values,
                int buckets) {
  std::vector<double> finite;
  std::ranges::copy_if(values, std::back_inserter(finite),
                       [](double x) { return std::isfinite(x); });
  if (finite.empty())
    return;
  auto [lowest, highest] = std::ranges::minmax_element(finite);
  to.min = *lowest;
  to.max = *highest;
  auto count = to.min < to.max ? std::max(buckets, 1) : 1;
  auto width = (to.max - to.min) / count;
  for (int i = 1; i < count; ++i)
    to.limits.push_back(to.min + width * i);
  to.limits.push_back(to.max);
  to.counts.resize(to.limits.size());
  for (auto x : finite) {
    to.sum += x;
    to.sum_squares += x * x;
    auto bucket = std::ranges::lower_bound(to.limits, x);
    ++to.counts[static_cast<std::size_t>(bucket - to.limits.begin())];
  }
}

/// *path* relative to the run's folder *run*; empty if it is not inside.
fs::path inside(const fs::path& path, const fs::path& run) {
  auto relative = path.lexically_relative(run);
  return relative.empty() || *relative.begin() == ".." ? fs::path{} : relative;
}

/// Whether *path*, relative to the run's folder, is of checkpoints: a report
/// renames their folders, retention removes them.
bool is_of_checkpoints(const fs::path& path) {
  return !path.empty() && *path.begin() == run_layout::checkpoints;
}

expected<void> sync_path(const fs::path& path) {
  return open_file(path, O_RDONLY, "open").and_then([&](const unique_fd& x) {
    return sync_file(x, path);
  });
}

/// Makes *path* below the folder *base* durable: with all below it, and its
/// name.
expected<void> sync_artifact(const fs::path& path, const fs::path& base) {
  TROUPE_TRY(auto found, look_up(path));
  if (found.is_folder()) {
    boost::system::error_code code;
    fs::recursive_directory_iterator i{path, code}, end;
    for (; !code && i != end; i.increment(code)) {
      TROUPE_TRY(auto entry, look_up_link(i->path()));
      if (entry.is_file() || entry.is_folder())
        TROUPE_TRY_VOID(sync_path(i->path()));
    }
    if (code)
      return tl::unexpected{storage_error("list", path, code.value())};
  }
  if (found.is_file() || found.is_folder())
    TROUPE_TRY_VOID(sync_path(path));
  for (auto folder = path; folder != base;) {
    folder = folder.parent_path();
    TROUPE_TRY_VOID(sync_path(folder));
  }
  return {};
}

/// The run's folder; nothing is created if it was renamed or replaced.
held_folder folder_of_run(train_context& context) {
  return value_or_throw(held_folder::open(
    context.run_path(), rank_access{context}.facts().run_inode));
}

} // namespace

tracking_handle::tracking_handle(train_context& context,
                                 const tracking_options& options)
  : context_(context.rank() == 0 ? &context : nullptr),
    exceptions_(std::uncaught_exceptions()) {
  send(loop_start{options.project, options.experiment, options.name});
}

tracking_handle::~tracking_handle() {
  if (!active())
    return;
  auto status = run_status_kind::finished;
  auto stop = context_->stop_info();
  if (stop && stop->kind != stop_info::kind_type::finished)
    status = stop->kind == stop_info::kind_type::stopped
               ? run_status_kind::aborted
               : run_status_kind::preempted;
  else if (std::uncaught_exceptions() > exceptions_)
    status = run_status_kind::errored;
  try {
    finish(status);
  } catch (const train_error&) {
    // The run is ending; its own status says how.
  }
}

void tracking_handle::log_params(const metrics& values) {
  send(logged_params{values});
}

void tracking_handle::log(const metrics& values, std::int64_t step) {
  next_step_ = step + 1;
  send(logged_metrics{step, values});
}

void tracking_handle::log(const metrics& values) {
  log(values, next_step_);
}

void tracking_handle::log_text(const std::string& name, const std::string& text,
                               std::int64_t step) {
  send(logged_text{step, name, text});
}

void tracking_handle::log_image(const std::string& name,
                                const image_view& image, std::int64_t step) {
  if (!active())
    return;
  check_process();
  auto bytes = value_or_throw(
    encode_png(image.width, image.height, image.channels, image.pixels));
  auto folder =
    value_or_throw(folder_of_run(*context_).folder(run_layout::media));
  auto begin =
    concat(file_name(name), '_', step, '_', context_->attempt(), '_');
  std::string file;
  do // Another handle of the loop may have written some.
    file = concat(begin, images_++, ".png");
  while (value_or_throw(folder.look_up(file)).exists());
  value_or_throw(folder.replace_file(file, bytes));
  send(logged_image{step, name, concat(run_layout::media, '/', file),
                    image.width, image.height, image.channels});
}

void tracking_handle::log_histogram(const std::string& name,
                                    std::span<const double> values,
                                    std::int64_t step, int buckets) {
  if (!active())
    return;
  logged_histogram x{.step = step, .name = name};
  distribute(x, values, buckets);
  send(std::move(x));
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
  // The storage path may go through a link.
  auto run = fs::canonical(context_->run_path(), code);
  if (code)
    throw train_error{
      storage_error("read", context_->run_path(), code.value())};
  auto kept = inside(source, run);
  if (kept == ".")
    throw train_error{
      {ec::invalid_argument,
       "the run's folder " + run.string()
         + " cannot be an artifact of the run: name a file or a folder in it"}};
  if (kept.empty() || is_of_checkpoints(kept)) {
    kept = (fs::path{run_layout::artifacts} / shown).lexically_normal();
    if (inside(run / kept, run / run_layout::artifacts).empty())
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
  // The journal, which names it, is durable within a second.
  value_or_throw(sync_artifact(run / kept, run));
  send(logged_artifact{kept, shown});
}

void tracking_handle::finish(run_status_kind status) {
  send(loop_finish{status});
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

template <class Record>
void tracking_handle::send(Record x) {
  if (active())
    rank_access{*context_}.log(to_event(std::move(x)));
}

} // namespace troupe
