// A client of the service, and its load test: sends samples and predictions at
// a fixed rate while the service trains.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <random>
#include <set>
#include <stdexcept>
#include <thread>

#include <caf/scoped_actor.hpp>

#include "messages.hpp"

namespace {

using clock_type = std::chrono::steady_clock;

struct options {
  troupe::fs::path socket = "runs/.sockets/service";
  int checkpoints = 30; // end after answers from so many
  int rate = 500;       // predictions per second
  int samples = 10;     // sent with each of them
  int limit_s = 300;    // give up then
  int seed = 1;

  TROUPE_FIELDS(socket, checkpoints, rate, samples, limit_s, seed)

  void validate() const {
    if (checkpoints < 1 || rate < 1 || limit_s < 1 || samples < 1
        || samples > 100'000)
      throw std::invalid_argument{"checkpoints, rate and limit_s are at least "
                                  "1, and samples is 1 to 100000"};
  }
};

/// What the service is to learn.
float truth(const features& x) {
  return std::sin(3 * x[0]) * x[1] + std::abs(x[2]) - 0.5f * x[3];
}

class load_test {
public:
  load_test(caf::actor_system& system, service_actor service,
            const options& cfg)
    : self_(system), service_(std::move(service)), cfg_(cfg),
      random_(static_cast<unsigned>(cfg.seed)) {}

  /// Sends samples until the first prediction is answered.
  bool wait_for_model(clock_type::time_point limit) {
    bool answered = false;
    while (!answered && lost_ == 0 && clock_type::now() < limit) {
      add();
      self_->request(service_, patience, predict{point()})
        .receive([&](const prediction&) { answered = true; },
                 [](const caf::error&) {
                   std::this_thread::sleep_for(std::chrono::milliseconds{10});
                 });
    }
    return answered;
  }

  /// Sends a prediction each time one is due, whether the last one was quick
  /// or not. Latencies count from when it was due.
  void run(clock_type::time_point limit) {
    auto due = clock_type::now();
    while (seen_.size() < static_cast<std::size_t>(cfg_.checkpoints)
           && due < limit) {
      due += std::chrono::nanoseconds{1'000'000'000 / cfg_.rate};
      std::this_thread::sleep_until(due);
      ask(due);
      add();
    }
  }

  /// Prints what was seen. Returns whether all is as it should be.
  bool report() {
    std::printf("round       answers  mean error\n");
    for (auto& [round, x] : rounds_)
      std::printf("%s  %7d  %10.4f\n", round.c_str(), x.answers,
                  x.error / x.answers);
    std::sort(latencies_.begin(), latencies_.end());
    auto ms = [this](double part) {
      return latencies_.empty()
               ? 0
               : latencies_[static_cast<std::size_t>(
                 part * static_cast<double>(latencies_.size() - 1))];
    };
    std::printf("%zu predictions answered, %d lost, %d from an older "
                "checkpoint than before; %zu checkpoints\n"
                "latency p50 %.2f ms, p99 %.2f ms, max %.2f ms\n",
                latencies_.size(), lost_, older_, seen_.size(), ms(.5), ms(.99),
                ms(1));
    return lost_ == 0 && older_ == 0
           && seen_.size() >= static_cast<std::size_t>(cfg_.checkpoints);
  }

private:
  static constexpr auto patience = std::chrono::seconds{10};

  struct round {
    int answers = 0;
    double error = 0;
  };

  features point() {
    std::uniform_real_distribution<float> any{-1, 1};
    features result;
    for (auto& x : result)
      x = any(random_);
    return result;
  }

  void add() {
    std::normal_distribution<float> noise{0, 0.05f};
    add_samples x;
    for (int i = 0; i < cfg_.samples; ++i) {
      auto at = point();
      x.samples.push_back({at, truth(at) + noise(random_)});
    }
    self_->request(service_, patience, std::move(x))
      .receive([](const samples_added&) {},
               [this](const caf::error& why) { lose(why); });
  }

  void ask(clock_type::time_point due) {
    auto at = point();
    self_->request(service_, patience, predict{at})
      .receive(
        [&](const prediction& x) {
          std::chrono::duration<double, std::milli> took =
            clock_type::now() - due;
          latencies_.push_back(took.count());
          older_ += !seen_.empty() && x.checkpoint < *seen_.rbegin();
          seen_.insert(x.checkpoint);
          auto& r = rounds_[x.checkpoint.substr(0, x.checkpoint.find('/'))];
          ++r.answers;
          r.error += std::abs(x.value - truth(at));
        },
        [this](const caf::error& why) { lose(why); });
  }

  void lose(const caf::error& why) {
    if (lost_++ == 0)
      std::fprintf(stderr, "service_client: %s\n",
                   troupe::from_caf(why).message.c_str());
  }

  caf::scoped_actor self_;
  service_actor service_;
  options cfg_;
  std::mt19937 random_;
  std::vector<double> latencies_; // ms
  std::set<std::string> seen_;    // checkpoints
  std::map<std::string, round> rounds_;
  int lost_ = 0;
  int older_ = 0;
};

} // namespace

int main(int argc, char** argv) {
  auto cfg = troupe::parse_config<options>(
    argc, argv, {.about = "Load test of the service."});
  troupe::register_messages<caf::id_block::service_messages>();
  troupe::system_config settings;
  caf::actor_system system{settings};
  auto service = troupe::connect<service_actor>(system, cfg.socket);
  if (!service) {
    std::fprintf(stderr, "service_client: %s\n",
                 service.error().message.c_str());
    return 1;
  }
  auto limit = clock_type::now() + std::chrono::seconds{cfg.limit_s};
  load_test test{system, std::move(*service), cfg};
  if (!test.wait_for_model(limit)) {
    std::fprintf(stderr, "service_client: no round has trained a model\n");
    return 1;
  }
  std::printf("the first model answers\n");
  test.run(limit);
  return test.report() ? 0 : 1;
}
