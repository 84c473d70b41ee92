#include "troupe/actors/agent_pulse.hpp"

#include <utility>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/actors/protocol/error_code.hpp"

namespace troupe::internal {

agent_pulse_actor::behavior_type agent_pulse(agent_pulse_actor::pointer self,
                                             agent_pulse_args args) {
  send(self, agent_pulse_actor{self}, caf::tick_atom_v);
  return {
    [self, args = std::move(args)](caf::tick_atom) {
      auto again = [self, interval = args.interval] {
        self->run_delayed(interval, [self] {
          send(self, agent_pulse_actor{self}, caf::tick_atom_v);
        });
      };
      request(self, args.group, caf::infinite,
              host_tick{args.node_rank, args.incarnation})
        .then(again, [refused = args.refused](const caf::error& reason) {
          // The end of the group, or of the connection, shows elsewhere.
          if (auto why = from_caf(reason); why.code == ec::stopped)
            refused(why);
        });
    },
  };
}

} // namespace troupe::internal
