#pragma once

#include "figure.hpp"
#include "workplace.hpp"

namespace troupe::internal::bench {

// One function per row, in the file of the same name. Values are in the unit of
// the row.

figure start_cold(workplace& place);
figure start_warm(workplace& place);
figure report_2(workplace& place);        // report.cpp
figure report_8(workplace& place);        // report.cpp
figure report_10k_keys(workplace& place); // report.cpp
figure reports_per_s(workplace& place);   // report.cpp
figure after_report(workplace& place);
figure tail(workplace& place);
figure ddp_step(workplace& place);
figure ddp_step_local(workplace& place); // ddp_step.cpp
figure all_reduce(workplace& place);
figure metric_sync(workplace& place);
figure report_with_sinks(workplace& place);
figure report_with_hung_tracker(workplace& place); // report_with_sinks.cpp
figure sink_drain_csv(workplace& place);           // sink_drain.cpp
figure sink_drain_tensorboard(workplace& place);   // sink_drain.cpp
figure sink_drain_mlflow(workplace& place);        // sink_drain.cpp
figure commit(workplace& place);
figure metric_update(workplace& place);
figure restart(workplace& place);
figure message_to_rank(workplace& place);
figure sweep_trials_per_s(workplace& place); // sweep_trials.cpp
figure idle(workplace& place);

} // namespace troupe::internal::bench
