#include "troupe/trainers/train_context.hpp"

#include <cstdio>
#include <vector>

#include "troupe/runtime/checkpoint/manifest.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/trainers/call_user_code.hpp"
#include "troupe/trainers/rank_link.hpp"

namespace troupe {

using namespace internal;

namespace {

/// Of the loops that run on this thread: a loop may call `fit()` for an inline
/// run, whose loop runs inside it.
thread_local std::vector<train_context*> contexts;

/// Most bytes of an event's kind.
constexpr std::size_t max_kind_bytes = 256;

/// As `value_or_throw`, but leaves a run that stops by `run_stopped`.
template <class T>
T value_or_leave(expected<T> x) {
  if (!x)
    leave_loop(std::move(x.error()));
  return value_or_throw(std::move(x));
}

std::string default_name(std::uint64_t index) {
  char buffer[48];
  std::snprintf(buffer, sizeof(buffer), "checkpoint_%06llu",
                static_cast<unsigned long long>(index));
  return buffer;
}

expected<void> check_free(rank_link& link, const std::string& name) {
  return link.has_checkpoint(name).and_then([&](bool taken) {
    return taken ? expected<void>{name_is_taken(name)} : expected<void>{};
  });
}

/// Whether a checkpoint may be called *name*: checked before anything of the
/// report is sent or counted, because a failed commit ends the run. Without
/// barrier, earlier checkpoints may still be under way, and the commit decides.
expected<void> check_name(rank_link& link, const std::string& name,
                          bool barrier) {
  auto valid = validate_checkpoint_name(name);
  return valid && barrier ? check_free(link, name) : valid;
}

/// The same for a default name: the driver is asked only if its *path*
/// exists.
expected<void> check_default(rank_link& link, const fs::path& path) {
  return look_up_link(path).and_then([&](const file_status& found) {
    return found.exists() ? check_free(link, path.filename().string())
                          : expected<void>{};
  });
}

} // namespace

train_context::train_context(rank_facts facts, std::shared_ptr<rank_link> link,
                             std::optional<troupe::checkpoint> resume)
  : facts_(std::move(facts)), link_(std::move(link)),
    checkpoint_(std::move(resume)),
    is_unread_(facts_.rank == 0 && checkpoint_.has_value()),
    next_report_(facts_.first_report),
    step_begin_(std::chrono::steady_clock::now()),
    owner_(std::this_thread::get_id()) {
  contexts.push_back(this);
}

train_context::~train_context() {
  end();
}

void train_context::end() {
  if (ended_.exchange(true))
    return;
  data_plane_.reset();
  std::erase(contexts, this);
}

rank_link& train_context::link_for(const char* call) {
  auto refuse = [&](const char* why) {
    leave_loop(
      {ec::invalid_argument, concat("rank ", rank(), ": ", call, why)});
  };
  if (ended_)
    refuse(" was called after the train loop had ended");
  if (std::this_thread::get_id() != owner_)
    refuse(" was called by a thread that is not the train loop's");
  if (!process_.is_here()) // It has the ids of threads, too.
    refuse(" was called in a process that the train loop forked");
  return *link_;
}

std::vector<reported_checkpoint> train_context::all_reported_checkpoints() {
  is_unread_ = false;
  return value_or_leave(
    link_for("all_reported_checkpoints()").reported_checkpoints());
}

staged_checkpoint train_context::new_checkpoint() {
  link_for("new_checkpoint()");
  call_before_report();
  return value_or_leave(staging::create(facts_.run_path, facts_.attempt,
                                        facts_.rank, facts_.run_inode));
}

void train_context::report(const metrics& values,
                           const report_options& options) {
  send(values, std::nullopt, options);
}

void train_context::report(const metrics& values, staged_checkpoint files,
                           const report_options& options) {
  send(values, std::move(files), options);
}

void train_context::report(const metrics& values, const train_state& state,
                           const report_options& options) {
  state.check_shared(); // what rank 0 lacks, too
  report(
    values, [&](staged_checkpoint& files) { state.save(files); }, options);
}

bool train_context::resume(const train_state& state) {
  link_for("resume()");
  auto& from = checkpoint();
  if (from)
    state.load(*from);
  return from.has_value();
}

void train_context::report(const metrics& values,
                           const troupe::checkpoint& files,
                           const report_options& options) {
  auto staged = new_checkpoint();
  value_or_leave(staged.add_directory(files.path(), options.move_files));
  send(values, std::move(staged), options);
}

void train_context::send(const metrics& values,
                         std::optional<staged_checkpoint> files,
                         const report_options& options) {
  auto& link = link_for("report()");
  if (in_hook_)
    leave_loop({ec::invalid_argument,
                concat("rank ", rank(), ": report() was called by on_report")});
  if (auto stop = link.stop_info(); stop && !knows_stop_)
    leave_by_itself(*stop);
  call_before_report();
  value_or_leave(validate(values));
  std::chrono::duration<double> step =
    std::chrono::steady_clock::now() - step_begin_;
  rank_report x{facts_.rank,  next_report_, values,
                std::nullopt, step.count(), stop_request_};
  std::optional<troupe::checkpoint> mine;
  if (files) {
    auto name = options.checkpoint_name.empty() ? default_name(next_report_)
                                                : options.checkpoint_name;
    auto path = run_path() / run_layout::checkpoints / name;
    value_or_leave(options.checkpoint_name.empty()
                     ? check_default(link, path)
                     : check_name(link, name, options.barrier));
    mine = troupe::checkpoint::from_directory(path);
    x.part =
      value_or_leave(staging::seal(*files, next_report_, std::move(name)));
  }
  ++next_report_;
  if (is_unread_)
    warn_of_unread_checkpoint(link);
  // Until the commit a source may be the only file that stays.
  auto wait = options.barrier || (files && staging::has_sources(*files));
  value_or_leave(link.report(std::move(x), wait));
  if (files)
    staging::remove_sources(*files);
  if (mine)
    checkpoint_ = mine;
  if (on_report_)
    call_hook(values, mine);
  step_begin_ = std::chrono::steady_clock::now();
}

void train_context::leave_by_itself(const troupe::stop_info& stop) {
  using kind = stop_info::kind_type;
  if (stop.kind != kind::finished && stop.kind != kind::continues)
    return;
  leaves_by_itself_ = true;
  auto what = stop.kind == kind::finished ? "the run ends: "
                                          : "the next attempt continues: ";
  throw run_stopped{{ec::stopped, what + stop.reason}};
}

void train_context::warn_of_unread_checkpoint(rank_link& link) {
  is_unread_ = false;
  value_or_leave(link.log(
    {warning_kind,
     {{"text",
       concat("attempt ", attempt(), " resumes from ", checkpoint_->name(),
              ", but the train loop of rank 0 reports without having "
              "asked for context.checkpoint(): a loop that does not load "
              "it trains from the beginning")}}}));
}

std::shared_ptr<void> train_context::before_report(std::function<void()> f) {
  auto result = std::make_shared<std::function<void()>>(std::move(f));
  std::erase_if(before_report_, [](auto& x) { return x.expired(); });
  before_report_.emplace_back(result);
  return result;
}

void train_context::call_before_report() {
  for (auto& x : before_report_)
    if (auto f = x.lock())
      (*f)();
}

void train_context::call_hook(const metrics& values,
                              const std::optional<troupe::checkpoint>& mine) {
  in_hook_ = true;
  auto failure =
    call_rank_hook("on_report", [&] { on_report_(*this, values, mine); });
  in_hook_ = false;
  if (!failure)
    return;
  if (failure.code != ec::stopped)
    hook_failure_ = failure;
  leave_loop(std::move(failure));
}

void train_context::log(loop_event x) {
  auto& link = link_for("log()");
  value_or_leave(validate(x.fields));
  if (x.kind.size() > max_kind_bytes)
    leave_loop({ec::invalid_argument,
                concat("log(): a kind of ", x.kind.size(),
                       " bytes is over the limit of ", max_kind_bytes)});
  if (event_kind::is_of_the_run(x.kind))
    leave_loop({ec::invalid_argument,
                "log(): '" + x.kind + "' is an event of the run itself"});
  value_or_leave(link.log(std::move(x)));
}

void train_context::barrier() {
  value_or_leave(link_for("barrier()").barrier());
}

std::string train_context::broadcast(expected<std::string> bytes) {
  auto& link = link_for("broadcast_from_rank_zero()");
  if (bytes && bytes->size() > max_broadcast_bytes)
    bytes =
      failure(ec::invalid_argument,
              concat("a broadcast of ", bytes->size(),
                     " bytes is over the limit of ", max_broadcast_bytes));
  return value_or_leave(link.broadcast(std::move(bytes)));
}

bool train_context::stop_requested() const noexcept {
  if (!link_->stop_requested())
    return false;
  knows_stop_ = true;
  return true;
}

void train_context::request_stop(std::string reason) {
  link_for("request_stop()");
  if (stop_request_.empty())
    stop_request_ = cut_reason(
      concat("rank ", rank(), ": ", reason.empty() ? "no reason" : reason));
}

std::optional<stop_info> train_context::stop_info() const {
  return link_->stop_info();
}

train_context& context() {
  if (!contexts.empty())
    return *contexts.back();
  throw std::logic_error{
    "troupe::context() was called on a thread that runs no train loop"};
}

} // namespace troupe
