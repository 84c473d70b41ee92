#include "measurement.hpp"
#include "takes.hpp"

namespace troupe::internal::bench {

std::vector<measurement> measurements() {
  return {
#ifdef TROUPE_BENCH_TORCH
    {"start_cold", "s", {.max_value = 0.8, .max_ratio = 1.5}, start_cold},
    {"start_warm", "ms", {.max_value = 80}, start_warm},
#endif
    {"report_2", "us", {.max_ratio = 2.4}, report_2},
    {"report_8", "us", {.max_ratio = 3}, report_8},
    {"report_10k_keys", "ms", {.max_ratio = 1.5}, report_10k_keys},
    {"reports_per_s", "1/s", {.min_value = 2000}, reports_per_s},
    {"after_report", "ms", {.max_value = 3}, after_report},
    {"tail", "ms", {.max_value = 10}, tail},
#ifdef TROUPE_BENCH_TORCH
    {"ddp_step", "ms", {.max_ratio = 1.03}, ddp_step},
    {"ddp_step_local", "ms", {.max_ratio = 0.92}, ddp_step_local},
    {"all_reduce_25m", "ms", {.max_ratio = 0.33}, all_reduce},
    {"metric_update", "us", {.max_ratio = 1.1}, metric_update},
    {"metric_sync", "collectives", {.max_value = 2}, metric_sync},
#endif
    {"report_with_sinks", "us", {.max_ratio = 1.1}, report_with_sinks},
    {"report_with_hung_tracker",
     "us",
     {.max_ratio = 1.01},
     report_with_hung_tracker},
    {"sink_drain_csv", "scalars/s", {.min_value = 50'000}, sink_drain_csv},
    {"sink_drain_tensorboard",
     "scalars/s",
     {.min_value = 50'000},
     sink_drain_tensorboard},
    {"sink_drain_mlflow", "scalars/s", {.min_value = 5'000}, sink_drain_mlflow},
    {"commit_64m", "GB/s", {.min_ratio = 0.75}, commit},
#ifdef TROUPE_BENCH_TORCH
    {"restart", "ms", {.max_value = 60}, restart},
#endif
    {"message_to_rank_64m", "ms", {.max_ratio = 1.3}, message_to_rank},
    {"sweep_trials_per_s", "1/s", {.min_ratio = 0.5}, sweep_trials_per_s},
    {"idle", "% of a core", {.max_value = 1}, idle},
  };
}

} // namespace troupe::internal::bench
