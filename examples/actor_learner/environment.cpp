#include "environment.hpp"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <stdexcept>
#include <stop_token>

#include <spawn.h>
#include <sys/wait.h>

#include <caf/scoped_actor.hpp>

#include "policy.hpp"

extern char** environ;

namespace {

struct options {
  troupe::fs::path socket;
  std::uint64_t seed = 0;
  int games = 8;
  int steps = 50; // of each game between two messages

  TROUPE_FIELDS(socket, seed, games, steps)

  void validate() const {
    if (games < 1 || games > 1000 || steps < 1 || steps > 100'000)
      throw std::invalid_argument{
        "games is 1 to 1000, and steps is 1 to 100000"};
  }
};

/// One game, and its steps whose next rewards are still to come.
class player {
public:
  /// A part *randomness* of its actions is random.
  player(std::uint64_t seed, double randomness)
    : game_(seed), random_(seed), randomness_(randomness) {}

  /// Plays one step. Without a policy all actions are random.
  void step(const std::optional<policy>& policy,
            std::vector<transition>& done) {
    std::bernoulli_distribution guesses{policy ? randomness_ : 1}, coin;
    auto from = game_.observe();
    int action = guesses(random_) ? coin(random_) : policy->act(from);
    game_.step(action);
    for (auto& x : open_) {
      x.reward += x.discount;
      x.discount *= gamma;
    }
    open_.push_back({from, action, 1, gamma, {}});
    if (open_.size() == steps_ahead)
      close(done);
    if (game_.is_over()) {
      while (!open_.empty())
        close(done);
      game_.reset();
    }
  }

private:
  static constexpr std::size_t steps_ahead = 3;
  static constexpr float gamma = 0.99f;

  void close(std::vector<transition>& done) {
    auto& x = open_.front();
    x.to = game_.observe();
    if (game_.has_fallen())
      x.discount = 0;
    done.push_back(x);
    open_.pop_front();
  }

  cart_pole game_;
  std::mt19937_64 random_;
  double randomness_;
  std::deque<transition> open_;
};

/// Learners may be away for so long: a group that restarts takes less.
constexpr auto patience = std::chrono::minutes{2};

void play(caf::actor_system& system, const exchange_actor& exchange,
          const options& cfg) {
  constexpr double randomness[] = {0, .05, .3, .05};
  std::vector<player> players;
  for (int i = 0; i < cfg.games; ++i)
    players.emplace_back(cfg.seed * 1000 + static_cast<std::uint64_t>(i),
                         randomness[i % 4]);
  caf::scoped_actor self{system};
  std::optional<policy> current;
  std::uint64_t version = 0;
  auto go_on = true;
  auto gone = [&](const caf::error&) { go_on = false; };
  while (go_on) {
    add_transitions news;
    for (int i = 0; i < cfg.steps; ++i)
      for (auto& x : players)
        x.step(current, news.all);
    self->request(exchange, patience, std::move(news)).receive([] {}, gone);
    self->request(exchange, patience, get_weights{version})
      .receive(
        [&](weights& x) {
          version = x.version;
          if (!x.values.empty())
            current.emplace(std::move(x.values));
        },
        gone);
  }
}

pid_t start_process(const std::string& socket, int number) {
  std::string program = "/proc/self/exe", verb = "environment";
  std::string socket_option = "--socket=" + socket;
  std::string seed = "--seed=" + std::to_string(number);
  char* arguments[] = {program.data(), verb.data(), socket_option.data(),
                       seed.data(), nullptr};
  pid_t pid = -1;
  auto failed =
    ::posix_spawn(&pid, program.c_str(), nullptr, nullptr, arguments, environ);
  return failed ? -1 : pid;
}

void keep_running(const std::stop_token& stop, const std::string& socket,
                  int number) {
  constexpr int max_starts = 20;
  for (int i = 0; i < max_starts && !stop.stop_requested(); ++i) {
    auto pid = start_process(socket, number + 100 * i);
    if (pid < 0)
      break;
    std::printf("environment %d is process %d\n", number, pid);
    siginfo_t end{};
    {
      std::stop_callback kill{stop, [pid] { ::kill(pid, SIGTERM); }};
      while (::waitid(P_PID, static_cast<id_t>(pid), &end, WEXITED | WNOWAIT)
             != 0) {
      }
    }
    ::waitpid(pid, nullptr, 0); // Its number is free from here on.
    if (!stop.stop_requested())
      std::printf("environment %d has ended (%s %d)\n", number,
                  end.si_code == CLD_EXITED ? "code" : "signal", end.si_status);
  }
  if (!stop.stop_requested())
    std::printf("environment %d is not started again\n", number);
}

} // namespace

int be_environment(int argc, char** argv) {
  // The variables of the environment, which it inherits, are for the learners.
  auto cfg = troupe::parse_config<options>(argc, argv, {.environment = ""});
  troupe::system_config settings;
  caf::actor_system system{settings};
  auto exchange = troupe::connect<exchange_actor>(system, cfg.socket);
  if (!exchange) {
    std::fprintf(stderr, "environment: %s\n", exchange.error().message.c_str());
    return 1;
  }
  // A request waits for its limit even if the program of the replay is gone.
  (*exchange)->attach_functor([] { std::_Exit(0); });
  play(system, *exchange, cfg);
  return 0;
}

environment_processes::environment_processes(int count,
                                             const troupe::fs::path& socket) {
  for (int i = 0; i < count; ++i)
    keepers_.emplace_back(keep_running, socket.string(), i);
}
