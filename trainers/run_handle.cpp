#include "troupe/trainers/run_handle.hpp"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <mutex>

#include <caf/io/middleman.hpp>
#include <caf/send.hpp>

#include "troupe/actors/callback_actor.hpp"
#include "troupe/actors/callback_chain.hpp"
#include "troupe/actors/callback_runner.hpp"
#include "troupe/actors/committer.hpp"
#include "troupe/actors/driver.hpp"
#include "troupe/actors/process_launcher.hpp"
#include "troupe/actors/protocol/register_messages.hpp"
#include "troupe/actors/thread_launcher.hpp"
#include "troupe/actors/transport/private_door.hpp"
#include "troupe/actors/transport/spawn_on_network_thread.hpp"
#include "troupe/actors/worker_group.hpp"
#include "troupe/callbacks/tracking/tracker_set.hpp"
#include "troupe/runtime/process/quiet_thread.hpp"
#include "troupe/runtime/process/spawner.hpp"
#include "troupe/runtime/run/make_result.hpp"
#include "troupe/runtime/run/told_reports.hpp"
#include "troupe/trainers/context_of.hpp"
#include "troupe/trainers/rank_runner.hpp"

namespace troupe {

/// All that lives as long as the run; the last member goes first.
struct run_handle::parts {
  // The group, and with it the launcher, may live as long as the actor system;
  // the door must not.
  ~parts() { door->reset(); }

  std::shared_ptr<run_store> store;
  std::shared_ptr<run_board> board = std::make_shared<run_board>();
  std::shared_ptr<tracker_set> trackers;
  std::shared_ptr<rank_launcher> launcher;
  std::shared_ptr<thread_launcher> threads; ///< The launcher, if it is this.
  /// Where its launcher finds the way to the group, which comes later.
  std::shared_ptr<std::optional<private_door>> door =
    std::make_shared<std::optional<private_door>>();
  std::shared_ptr<kept_contexts> contexts = std::make_shared<kept_contexts>();
  std::shared_ptr<std::atomic<bool>> callbacks_left_behind =
    std::make_shared<std::atomic<bool>>(false);
  std::mutex waiting; ///< Of those who call `wait`, while the run's rest ends.
  /// By trackers and to callbacks, once the run is over.
  std::vector<std::string> unsent;
  std::shared_ptr<told_reports> told; ///< Until the run is over.
  driver_actor driver;
  worker_group_actor group;
  /// Where ranks' threads find the group, which comes after their launcher.
  std::shared_ptr<worker_group_actor> group_cell =
    std::make_shared<worker_group_actor>();
};

namespace {

/// Actors of a run with a thread of their own: the committer, and the one that
/// calls callbacks.
constexpr std::size_t detached_actors = 2;

template <class Hook>
expected<std::optional<function_address>> address_of(const Hook& hook,
                                                     std::string_view name) {
  if (!hook)
    return std::nullopt;
  return locate(hook.address(), "the hook " + std::string{name})
    .map([](function_address x) { return std::optional{std::move(x)}; });
}

expected<hook_spec> spec_of(const rank_hooks& hooks) {
  auto before = address_of(hooks.before_loop, "before_loop");
  if (!before)
    return tl::unexpected<error>{std::move(before.error())};
  auto after = address_of(hooks.after_loop, "after_loop");
  if (!after)
    return tl::unexpected<error>{std::move(after.error())};
  auto report = address_of(hooks.on_report, "on_report");
  if (!report)
    return tl::unexpected<error>{std::move(report.error())};
  return hook_spec{std::move(*before), std::move(*after), std::move(*report)};
}

expected<loop_spec> spec_of(const train_loop& loop) {
  auto entry = locate(reinterpret_cast<const void*>(loop.entry));
  if (!entry)
    return tl::unexpected<error>{std::move(entry.error())};
  auto body = locate(loop.loop);
  if (!body)
    return tl::unexpected<error>{std::move(body.error())};
  auto hooks = spec_of(loop.hooks);
  if (!hooks)
    return tl::unexpected<error>{std::move(hooks.error())};
  return loop_spec{std::move(*entry), std::move(*body), loop.config,
                   std::move(*hooks)};
}

expected<group_plan> plan_of(const run_request& request, const cpu_plan& cpus,
                             const run_store& store) {
  group_plan plan;
  plan.run_name = *request.run.name;
  plan.run_path = store.path().string();
  plan.run_inode = store.folder().files().inode();
  plan.run_id = store.description().id;
  plan.world_size = request.scaling.num_workers;
  plan.in_process = request.scaling.where == placement::in_process;
  if (!plan.in_process)
    plan.cores = cpus.cores;
  for (int rank = 0; rank < plan.world_size; ++rank)
    plan.gpus.push_back(gpus_of(request.scaling, rank));
  plan.report_timeout = request.run.report_timeout;
  plan.hang_timeout = request.run.hang_timeout;
  plan.start_timeout = request.run.start_timeout;
  plan.stop_timeout = request.run.stop_timeout;
  plan.exit_timeout = request.run.exit_timeout;
  if (plan.in_process) // Threads are handed the loop itself.
    return plan;
  auto loop = spec_of(request.loop);
  if (!loop)
    return tl::unexpected<error>{std::move(loop.error())};
  plan.loop = std::move(*loop);
  return plan;
}

/// The user's actors. Waits for connections, so it comes before anything else.
expected<std::vector<named_callback_actor>>
find_actors(const run_config& config, caf::actor_system& system) {
  std::vector<named_callback_actor> result;
  for (auto& x : config.callback_actors) {
    auto actor = x->find(system);
    if (!actor)
      return failure(actor.error().code,
                     "callback actor " + std::to_string(result.size() + 1)
                       + " (" + x->name() + "): " + actor.error().message);
    result.push_back({x->name(), std::move(*actor)});
  }
  return result;
}

/// Who hears what the driver tells of the run.
struct listeners {
  std::shared_ptr<callback_list> classes;
  std::vector<named_callback_actor> actors;
  std::shared_ptr<told_reports> told; ///< Unset: there is no one.
};

expected<listeners> find_listeners(const run_config& config,
                                   std::vector<named_callback_actor> actors,
                                   run_store& store) {
  listeners result{std::make_shared<callback_list>(
                     told_callbacks(config.callbacks), config.callback_errors),
                   std::move(actors),
                   {}};
  auto has_callbacks = !result.classes->empty() || !result.actors.empty();
  return open_told(store, has_callbacks)
    .map([&](std::optional<told_reports> x) {
      if (x)
        result.told = std::make_shared<told_reports>(std::move(*x));
      return std::move(result);
    });
}

/// Invalid: no one.
template <class Spawn>
user_callback_actor spawn_callbacks(listeners x, const run_config& config,
                                    callback_patience patience,
                                    caf::actor_system& system, Spawn spawn) {
  if (!x.told)
    return {};
  callback_chain_args args;
  args.watch = x.classes->watch();
  if (!x.classes->empty())
    args.classes = system.spawn<caf::detached>(callback_runner,
                                               user_callback_args{x.classes});
  args.actors = std::move(x.actors);
  args.callback_errors = config.callback_errors;
  args.patience = std::move(patience);
  return spawn(callback_chain, std::move(args));
}

} // namespace

expected<run_handle>
run_handle::start(run_request request, caf::actor_system& system,
                  std::function<void(std::string_view)> console,
                  std::function<bool()> given_up) {
  try {
    return begin(std::move(request), system, std::move(console),
                 std::move(given_up));
  } catch (...) {
    return tl::unexpected<error>{caught("the run could not start")};
  }
}

expected<run_handle>
run_handle::begin(run_request request, caf::actor_system& system,
                  std::function<void(std::string_view)> console,
                  std::function<bool()> given_up) {
  auto fail = [](error x) { return tl::unexpected<error>{std::move(x)}; };
  register_messages();
  if (auto ok = validate(request); !ok)
    return fail(ok.error());
  auto in_process = request.scaling.where == placement::in_process;
  spawner_client* client = nullptr;
  if (!in_process) {
    auto found = spawner();
    if (!found)
      return fail(found.error());
    client = *found;
    if (!system.has_middleman())
      return failure(ec::invalid_config,
                     "the actor system has no middleman: load "
                     "caf::io::middleman in its config");
  }
  request.run = resolve(std::move(request.run));
  request.loop.hooks = request.run.rank_hooks;
  auto actors = find_actors(request.run, system);
  if (!actors)
    return fail(actors.error());
  if (given_up && given_up())
    return failure(ec::stopped, "the run was stopped before it began");
  auto x = std::make_unique<parts>();
  auto store = run_store::open(request.run, request.loop.config_text);
  if (!store)
    return fail(store.error());
  x->store = std::move(*store);
  request.run.name = x->store->description().name;
  auto trackers = tracker_set::start(
    request.run, x->store->description(), x->store->path(),
    {[board = x->board](std::string text) { board->note(std::move(text)); },
     [board = x->board] { return board->status(); }});
  if (!trackers)
    return fail(trackers.error());
  x->trackers = std::move(*trackers);
  x->store->on_append([trackers = x->trackers] { trackers->notify(); });
  auto told = find_listeners(request.run, std::move(*actors), *x->store);
  if (!told)
    return fail(told.error());
  auto cpus = plan_cpus(available_cores(), request.scaling.num_workers);
  auto plan = plan_of(request, cpus, *x->store);
  if (!plan)
    return fail(plan.error());
  // An actor that gets none would be waited for at the end of the system.
  if (auto ok = expect_threads(detached_actors); !ok)
    return fail(ok.error());
  // Last of what may fail: an attempt that begins needs an end.
  x->store->stop_waiting_if(std::move(given_up));
  auto first = x->store->begin_attempt();
  x->store->stop_waiting_if({});
  if (!first)
    return fail(first.error());

  if (in_process) {
    x->threads = std::make_shared<thread_launcher>(
      [&system,
       find = [loop = request.loop](const loop_spec&) -> expected<train_loop> {
         return loop;
       },
       group = x->group_cell,
       kept = x->contexts](std::uint64_t attempt, int rank, int segment) {
        (void) run_rank(system, {*group, attempt, rank, segment, find, kept});
      });
    x->launcher = x->threads;
  } else {
    x->launcher = std::make_shared<process_launcher>(process_launcher_args{
      client,
      [door = x->door]() -> expected<unique_fd> {
        if (!*door)
          return failure(ec::stopped, "the run is over");
        return (*door)->let_in();
      },
      (x->store->path() / "logs").string(), cpus, request.run.worker_env,
      std::move(console), [store = x->store] { return store->ticket(); }});
  }

  worker_group_args group_args{x->launcher, std::move(*plan)};
  // Where their messages come in, if they come from other processes.
  auto spawn = [&](auto behavior, auto xs) {
    return in_process
             ? system.spawn(behavior, std::move(xs))
             : spawn_on_network_thread(system, behavior, std::move(xs));
  };
  x->group = spawn(worker_group, std::move(group_args));
  *x->group_cell = x->group;
  driver_args args;
  args.store = x->store;
  args.board = x->board;
  args.committer =
    system.spawn<caf::detached>(committer, committer_args{x->store, x->board});
  args.told = x->told = told->told;
  args.callbacks = spawn_callbacks(
    std::move(*told), request.run,
    {request.run.callback_timeout, request.run.callback_limit,
     [board = x->board](std::string text) { board->note(std::move(text)); },
     x->callbacks_left_behind},
    system, spawn);
  args.context = context_of(request, *x->store);
  args.failure = request.run.failure;
  args.first = std::move(*first);
  args.world_size = request.scaling.num_workers;
  args.has_logs = !in_process;
  args.callback_queue = static_cast<std::size_t>(request.run.callback_queue);
  args.stop_timeout = request.run.stop_timeout;
  args.stop_grace = request.run.stop_grace;
  args.longest_grace = longest_grace(request.run);
  args.group = x->group;
  x->driver = spawn(troupe::driver, std::move(args));
  x->store->on_loss([driver = x->driver, trackers = x->trackers,
                     folder = &x->store->folder()](const error& reason) {
    if (folder->is_ousted())
      trackers->abandon();
    caf::anon_send(driver, storage_lost{reason});
  });
  run_handle result{std::move(x)};
  if (!in_process) {
    auto door =
      open_private_door(system, result.parts_->group,
                        [board = result.parts_->board](std::string why) {
                          board->note(std::move(why));
                        });
    if (!door) {
      // No one asked it to stop: the driver stores what the matter is.
      caf::anon_send(result.parts_->driver, storage_lost{door.error()});
      return fail(door.error());
    }
    result.parts_->door->emplace(std::move(*door));
  }
  caf::anon_send(result.parts_->driver, start_run{});
  return result;
}

run_handle::run_handle(std::unique_ptr<parts> x) : parts_(std::move(x)) {}

run_handle::run_handle(run_handle&&) noexcept = default;

run_handle& run_handle::operator=(run_handle&& other) noexcept {
  if (this == &other)
    return *this;
  run_handle before{std::move(*this)}; // ends its run when it goes
  parts_ = std::move(other.parts_);
  return *this;
}

run_handle::~run_handle() {
  if (!parts_)
    return;
  stop();
  wait();
}

run_status run_handle::status() const {
  return parts_->board->status();
}

void run_handle::stop(std::string reason) {
  caf::anon_send(parts_->driver, stop_run{std::move(reason)});
}

void run_handle::preempt(std::optional<std::chrono::milliseconds> grace,
                         std::string reason) {
  caf::anon_send(parts_->driver,
                 preempt_run{std::move(reason), grace ? grace->count() : -1});
}

result run_handle::wait(const std::function<bool()>& hurried) noexcept {
  auto outcome = parts_->board->wait();
  std::lock_guard guard{parts_->waiting};
  try {
    parts_->launcher->drain();
    for (auto& text : parts_->trackers->finish(hurried))
      parts_->unsent.push_back(std::move(text));
    if (auto told = std::exchange(parts_->told, nullptr))
      std::ranges::copy(told->skipped(), std::back_inserter(parts_->unsent));
  } catch (...) {
    parts_->unsent.push_back(
      caught("the run's last files may be incomplete").message);
    parts_->board->note(parts_->unsent.back());
  }
  // Nothing of the run writes to its folder any more.
  parts_->store->release();
  outcome.unsent = parts_->unsent;
  return outcome;
}

run_board& run_handle::board() {
  return *parts_->board;
}

const driver_actor& run_handle::driver() const {
  return parts_->driver;
}

int run_handle::threads_left_behind() const {
  return (parts_->threads ? parts_->threads->running() : 0)
         + (*parts_->callbacks_left_behind ? 1 : 0);
}

} // namespace troupe
