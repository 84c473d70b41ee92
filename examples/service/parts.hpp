#pragma once

#include <cstdint>
#include <deque>
#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include "messages.hpp"
#include "round.hpp"

// The actors that the service consists of:
//
//   clients -- add_samples --> INGEST -- shard_ready --> TRAINER: runs
//                                           run_closed --^  |
//   clients -- predict --> PREDICTOR <-- new_model -- LOADER <-- after_report

// -- what they say to each other

/// A file has as many samples as begin a round.
struct shard_ready {
  std::string path;
};

template <class Inspector>
bool inspect(Inspector& f, shard_ready& x) {
  return f.object(x).fields(f.field("path", x.path));
}

/// The service is to end.
struct end_training {};

template <class Inspector>
bool inspect(Inspector& f, end_training& x) {
  return f.object(x).fields();
}

/// A model that is ready to answer. Does not leave this process.
struct new_model {
  std::shared_ptr<const ::model> model;
  std::string checkpoint;
};

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(new_model)

// -- INGEST: writes samples into files

using ingest_actor = caf::typed_actor<
  // Answers once the samples are written.
  caf::result<samples_added>(add_samples)>;

using trainer_actor = caf::typed_actor<
  // Begins a round, if none is under way.
  caf::result<void>(shard_ready),
  // The round is over: begins the next one, if samples wait for it.
  caf::result<void>(troupe::run_closed),
  // Preempts the round under way, then ends the actor.
  caf::result<void>(end_training)>;

struct ingest_state {
  static inline constexpr auto name = "ingest";

  troupe::fs::path folder;
  std::uint64_t shard_size = 0;
  trainer_actor trainer;
  std::uint64_t shard = 0; ///< Number of the file that grows.
  std::uint64_t size = 0;  ///< Its samples.
  std::uint64_t total = 0; ///< Since the start.
  troupe::fs::ofstream file;
};

/// Spawn it detached: it waits for the disk.
ingest_actor::behavior_type
ingest(ingest_actor::stateful_pointer<ingest_state> self,
       troupe::fs::path folder, std::uint64_t shard_size,
       trainer_actor trainer);

// -- PREDICTOR: answers, and never waits

using predictor_actor = caf::typed_actor<
  // From now on this model answers.
  caf::result<void>(new_model),
  // Answers at once; an error if there is no model yet.
  caf::result<prediction>(predict)>;

struct predictor_state {
  static inline constexpr auto name = "predictor";

  new_model newest;
};

predictor_actor::behavior_type
predictor(predictor_actor::stateful_pointer<predictor_state> self);

// -- TRAINER: a run per round

struct trainer_options {
  troupe::fs::path storage; ///< Of the runs.
  troupe::fs::path shards;  ///< What INGEST writes.
  int workers = 2;
  bool gpu = false;
  int epochs = 10;
};

struct trainer_state {
  static inline constexpr auto name = "trainer";

  void begin_round(caf::actor_system& system, const trainer_actor& self);
  void end_round();

  trainer_options options;
  troupe::run_observer_actor loader;
  std::deque<troupe::fs::path> shards; ///< The newest ones.
  bool has_news = false;               ///< Samples that no round has seen.
  std::uint64_t round = 0;
  std::optional<troupe::run_handle> run; ///< Of this round, until it is closed.
  std::optional<troupe::checkpoint> newest;   ///< Where the next round begins.
  std::optional<troupe::fs::path> last_round; ///< The folder that has it.
  bool ends = false;
};

trainer_actor::behavior_type
trainer(trainer_actor::stateful_pointer<trainer_state> self,
        trainer_options options, predictor_actor predictor);

// -- LOADER: follows the runs, reads their checkpoints for the predictor

struct loader_state {
  static inline constexpr auto name = "loader";

  std::string run_name;
};

/// Spawn it detached: it reads files.
troupe::run_observer_actor::behavior_type
loader(troupe::run_observer_actor::stateful_pointer<loader_state> self,
       predictor_actor predictor);

CAF_BEGIN_TYPE_ID_BLOCK(service_parts, caf::id_block::service_messages::end)
CAF_ADD_TYPE_ID(service_parts, (shard_ready))
CAF_ADD_TYPE_ID(service_parts, (end_training))
CAF_ADD_TYPE_ID(service_parts, (new_model))
CAF_END_TYPE_ID_BLOCK(service_parts)
