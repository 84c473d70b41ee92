#include "troupe/actors/trainer.hpp"

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

trainer_actor::behavior_type trainer(trainer_actor::pointer self,
                                     trainer_args args) {
  monitor(self, args.agent, [args](const caf::down_msg&) {
    args.control->end(
      {ec::protocol, concat("rank ", args.rank, ": the driver is gone")});
  });
  return {
    [args](stop_loop& x) {
      if (x.attempt == args.attempt)
        args.control->end(std::move(x.reason));
    },
  };
}

} // namespace troupe::internal
