// CartPole by processes that play and a group of ranks that learns: the
// architecture of Ape-X. Ends when a checkpoint reaches the goal.

#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>

#include "environment.hpp"
#include "judge.hpp"
#include "learner.hpp"
#include "replay.hpp"

namespace {

struct options {
  int environments = 2; // processes
  double goal = 475;    // mean reward of 100 episodes
  std::uint64_t seed = 1;
  int updates = 40'000; // at most

  TROUPE_FIELDS(environments, goal, seed, updates)

  void validate() const {
    if (updates < 1 || environments < 1 || environments > 1000)
      throw std::invalid_argument{
        "updates is at least 1, and environments is 1 to 1000"};
    if (!(goal > 0 && goal <= 500))
      throw std::invalid_argument{
        "goal is above 0 and at most 500, the reward of a whole episode"};
  }
};

int complain(const troupe::error& why) {
  std::fprintf(stderr, "actor_learner: %s\n", why.message.c_str());
  return 1;
}

/// Where environments find the replay: in a folder that only this user may
/// enter, by the name of the run. So the next start with that name replaces
/// the socket of one that was killed.
troupe::expected<troupe::published_socket>
open_door(caf::actor_system& system, const exchange_actor& replay,
          const troupe::run_config& run) {
  auto folder = troupe::fs::absolute(run.storage_path) / ".sockets";
  boost::system::error_code failed;
  troupe::fs::create_directories(folder, failed);
  if (!failed)
    troupe::fs::permissions(folder, troupe::fs::owner_all, failed);
  if (failed)
    return troupe::failure(troupe::ec::storage,
                           "cannot make the folder " + folder.string()
                             + " for this user alone: " + failed.message());
  troupe::fs::path name{run.name.value_or("cart_pole")};
  return troupe::publish(system, replay, folder / name.filename());
}

int conclude(const troupe::result& result) {
  if (result.error)
    return complain({result.error->code, result.error->message});
  // Not `stop_reason`: it is empty if the last checkpoint reaches the goal.
  auto folder = result.path / "callbacks/judge";
  std::string verdict;
  troupe::fs::ifstream file{folder / "verdict.txt"};
  if (!std::getline(file, verdict)) {
    std::printf("the goal was not reached\n");
    return 1;
  }
  std::printf("%s after %.0f updates; the policy is in %s\n", verdict.c_str(),
              result.metrics.number("updates"), (folder / "policy").c_str());
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  // Before `init`, so that ranks know them, too.
  troupe::register_messages<caf::id_block::actor_learner>();
  if (argc > 1 && std::string_view{argv[1]} == "environment")
    return be_environment(argc - 1, argv + 1);
  troupe::init(argc, argv);
  troupe::train_options run{.scaling = {.num_workers = 2},
                            .run = {.name = "cart_pole",
                                    .storage_path = "runs",
                                    .if_finished = troupe::if_finished::number,
                                    .failure = {.max_failures = 10},
                                    .checkpoint = {.num_to_keep = 1}}};
  auto cfg = troupe::parse_config<options>(
    argc, argv, run, {.about = "CartPole by actors and a group of learners."});
  std::setvbuf(stdout, nullptr, _IOLBF, 0);

  troupe::system_config settings;
  caf::actor_system system{settings};
  auto replay = system.spawn(exchange);
  auto door = open_door(system, replay, run.run);
  if (!door)
    return complain(door.error());
  auto judging = system.spawn<caf::detached>(judge, cfg.goal, replay);
  auto judged = run; // Ends before the system: it has an actor.
  judged.run.callback_actors = {troupe::as_callback(judging, "judge")};
  auto learners = start_learners(
    system, replay, {.updates = cfg.updates, .seed = cfg.seed}, judged);
  troupe::result result;
  if (learners) {
    environment_processes players{cfg.environments, door->path()};
    result = learners->wait();
  }
  caf::anon_send_exit(replay, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(judging, caf::exit_reason::user_shutdown);
  if (!learners)
    return complain(learners.error());
  return conclude(result);
}
