// A service that learns a function from the samples of its clients, in rounds,
// and answers predictions meanwhile. SIGINT and SIGTERM end it.

#include <csignal>
#include <cstdio>
#include <stdexcept>

#include <caf/io/middleman.hpp>
#include <caf/scoped_actor.hpp>

#include "parts.hpp"

namespace {

struct options {
  troupe::fs::path storage = "runs";
  int workers = 2;
  bool gpu = false;
  std::uint64_t shard_size = 4000; // samples that begin a round
  int epochs = 10;                 // of a round

  TROUPE_FIELDS(storage, workers, gpu, shard_size, epochs)

  void validate() const {
    if (shard_size < 1 || epochs < 1 || workers < 1 || workers > 1024)
      throw std::invalid_argument{
        "shard_size and epochs are at least 1, and workers is 1 to 1024"};
  }
};

/// The actor system is the service's own: Troupe needs the middleman in it.
struct service_config : caf::actor_system_config {
  service_config() {
    load<caf::io::middleman>();
    set("caf.scheduler.policy", "sharing"); // the default one polls
    set("caf.scheduler.max-threads", 2);
  }
};

/// What clients reach: passes their requests on.
service_actor::behavior_type front(service_actor::pointer self,
                                   const ingest_actor& ingest,
                                   const predictor_actor& predictor) {
  return {
    [=](add_samples& x) { return self->delegate(ingest, std::move(x)); },
    [=](predict& x) { return self->delegate(predictor, x); },
  };
}

/// Makes *folder* in the storage, and lets only this user enter it. The storage
/// itself stays as open as it is: it may have runs of others.
troupe::expected<void> make_own(const troupe::fs::path& folder) {
  boost::system::error_code failed;
  troupe::fs::create_directories(folder, failed);
  if (!failed)
    troupe::fs::permissions(folder, troupe::fs::owner_all, failed);
  if (failed)
    return troupe::failure(troupe::ec::storage,
                           "cannot make the folder " + folder.string()
                             + " for this user alone: " + failed.message());
  return {};
}

int complain(const troupe::error& why) {
  std::fprintf(stderr, "service: %s\n", why.message.c_str());
  return 1;
}

} // namespace

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  auto cfg = troupe::parse_config<options>(
    argc, argv, {.about = "A service that trains while it answers."});
  if (cfg.gpu && !has_gpu()) {
    std::fprintf(stderr,
                 "service: --gpu: LibTorch shows this process no GPU\n");
    return 2;
  }
  auto storage = troupe::fs::absolute(cfg.storage);
  // Hidden ones are not taken for runs.
  auto shards = storage / ".samples", sockets = storage / ".sockets";
  for (auto& folder : {shards, sockets})
    if (auto made = make_own(folder); !made)
      return complain(made.error());
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  troupe::register_messages<caf::id_block::service_messages,
                            caf::id_block::service_parts>();

  // Blocked in all threads that begin below; main waits for them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  service_config settings;
  caf::actor_system system{settings};
  auto predictions = system.spawn(predictor);
  auto training = system.spawn(trainer,
                               trainer_options{.storage = storage,
                                               .shards = shards,
                                               .workers = cfg.workers,
                                               .gpu = cfg.gpu,
                                               .epochs = cfg.epochs},
                               predictions);
  auto samples =
    system.spawn<caf::detached>(ingest, shards, cfg.shard_size, training);
  auto service = system.spawn(front, samples, predictions);
  auto door = troupe::publish(system, service, sockets / "service");
  if (door)
    std::printf("clients find the service at %s\n", door->path().c_str());
  else
    complain(door.error());

  int signal = 0;
  if (door)
    sigwait(&signals, &signal);
  // In this order: no new samples, a last checkpoint, no predictions.
  caf::anon_send_exit(samples, caf::exit_reason::user_shutdown);
  caf::scoped_actor self{system};
  self->send(training, end_training{});
  self->wait_for(training);
  caf::anon_send_exit(service, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(predictions, caf::exit_reason::user_shutdown);
  return door ? 0 : 1;
}
