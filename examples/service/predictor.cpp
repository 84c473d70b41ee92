// Predictions, and the models that make them.

#include <cstdio>

#include "parts.hpp"

predictor_actor::behavior_type
predictor(predictor_actor::stateful_pointer<predictor_state> self) {
  return {
    [self](const new_model& x) { self->state.newest = x; },
    [self](const predict& x) -> caf::result<prediction> {
      auto& newest = self->state.newest;
      if (!newest.model)
        return troupe::to_caf(
          {troupe::ec::not_initialized, "no round has trained a model yet"});
      return prediction{newest.model->predict(x.at), newest.checkpoint};
    },
  };
}

troupe::run_observer_actor::behavior_type
loader(troupe::run_observer_actor::stateful_pointer<loader_state> self,
       predictor_actor predictor) {
  return {
    [self](const troupe::before_run& x) {
      self->state.run_name = x.run.name;
      return troupe::callback_done{};
    },
    // The run continues meanwhile, but keeps this checkpoint until the answer.
    [self, predictor](const troupe::after_report& x) {
      troupe::callback_done done;
      if (!x.checkpoint)
        return done;
      try {
        self->send(predictor, new_model{std::make_shared<model>(*x.checkpoint),
                                        self->state.run_name + '/'
                                          + x.checkpoint->name()});
      } catch (const troupe::train_error& why) { // The older model stays.
        done.failures = {{troupe::ec::callback_failed, why.what()}};
      }
      return done;
    },
    [self](const troupe::group_started& x) {
      std::printf("%s: %d ranks train\n", self->state.run_name.c_str(),
                  x.world_size);
      return troupe::callback_done{};
    },
    [self](const troupe::after_exception& x) {
      for (auto& [rank, failure] : x.ranks)
        std::printf("%s: rank %d: %s\n", self->state.run_name.c_str(), rank,
                    to_string(failure).c_str());
      return troupe::callback_done{};
    },
    [](const troupe::after_run&) { return troupe::callback_done{}; },
    [](const troupe::group_ended&) { return troupe::callback_done{}; },
    [](const troupe::state_changed&) { return troupe::callback_done{}; },
  };
}
