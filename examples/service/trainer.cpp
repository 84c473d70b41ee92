// Rounds: one run after another, each from the last checkpoint.

#include <algorithm>
#include <cstdio>

#include "parts.hpp"

namespace {

/// Shards that a round trains on; older ones are removed.
constexpr std::size_t max_shards = 4;

std::string run_name(std::uint64_t round) {
  char name[32];
  std::snprintf(name, sizeof name, "round-%04llu",
                static_cast<unsigned long long>(round));
  return name;
}

/// What an earlier service has left: its shards, and its last checkpoint.
void find_earlier(trainer_state& x) {
  namespace fs = troupe::fs;
  for (auto& entry : fs::directory_iterator{x.options.shards})
    if (entry.path().extension() == ".bin")
      x.shards.push_back(entry.path());
  std::sort(x.shards.begin(), x.shards.end());
  std::vector<fs::path> rounds;
  for (auto& entry : fs::directory_iterator{x.options.storage})
    if (entry.path().filename().string().starts_with("round-"))
      rounds.push_back(entry.path());
  std::sort(rounds.begin(), rounds.end());
  for (auto& path : rounds) {
    x.round = std::stoull(path.filename().string().substr(6));
    auto earlier = troupe::result::from_path(path);
    if (earlier && earlier->checkpoint) {
      x.newest = earlier->checkpoint;
      x.last_round = path;
    }
  }
}

} // namespace

void trainer_state::begin_round(caf::actor_system& system,
                                const trainer_actor& self) {
  for (; shards.size() > max_shards; shards.pop_front())
    troupe::fs::remove(shards.front());
  has_news = false;
  round_config config{.shards = {shards.begin(), shards.end()},
                      .epochs = options.epochs};
  if (newest)
    config.from = newest->path();
  troupe::train_options how{
    .scaling = {.num_workers = options.workers, .use_gpu = options.gpu},
    .run = {.name = run_name(++round),
            .storage_path = options.storage,
            .failure = {.max_failures = 3},
            .checkpoint = {.num_to_keep = 1}}};
  how.run.callback_actors = {troupe::as_callback(loader, "loader")};
  auto started = start_round(system, config, how);
  auto told = started.and_then(
    [&](troupe::run_handle& x) { return x.when_closed(self); });
  if (told)
    run.emplace(std::move(*started));
  else
    std::printf("%s cannot start: %s\n", run_name(round).c_str(),
                told.error().message.c_str());
}

void trainer_state::end_round() {
  auto outcome = run->wait(); // returns at once
  run.reset();
  std::printf("%s has %s after %llu attempt%s", run_name(round).c_str(),
              std::string{to_string(outcome.status)}.c_str(),
              static_cast<unsigned long long>(outcome.attempts),
              outcome.attempts == 1 ? "" : "s");
  if (outcome.error)
    std::printf(": %s\n", outcome.error->message.c_str());
  else
    std::printf(": loss %.4f\n", outcome.metrics.number("loss"));
  if (!outcome.checkpoint)
    return;
  if (last_round)
    troupe::fs::remove_all(*last_round); // No one reads it any more.
  last_round = outcome.path;
  newest = outcome.checkpoint;
}

trainer_actor::behavior_type
trainer(trainer_actor::stateful_pointer<trainer_state> self,
        trainer_options options, predictor_actor predictor) {
  auto& state = self->state;
  state.options = std::move(options);
  find_earlier(state);
  if (state.newest)
    self->send(predictor,
               new_model{std::make_shared<model>(*state.newest),
                         run_name(state.round) + '/' + state.newest->name()});
  state.loader = self->spawn<caf::detached>(loader, predictor);
  auto leave = [self] {
    caf::anon_send_exit(self->state.loader, caf::exit_reason::user_shutdown);
    self->quit();
  };
  return {
    [self](const shard_ready& x) {
      auto& state = self->state;
      state.shards.emplace_back(x.path);
      state.has_news = true;
      if (!state.run && !state.ends)
        state.begin_round(self->system(), trainer_actor{self});
    },
    [self, leave](const troupe::run_closed&) {
      auto& state = self->state;
      state.end_round();
      if (state.ends)
        leave();
      else if (state.has_news)
        state.begin_round(self->system(), trainer_actor{self});
    },
    [self, leave](end_training) {
      auto& state = self->state;
      state.ends = true;
      if (state.run)
        state.run->preempt("the service ends");
      else
        leave();
    },
  };
}
