#pragma once

// The trackers that a run can have in `run_config::trackers`.

#include "troupe/callbacks/comet/comet.hpp"
#include "troupe/callbacks/csv/csv.hpp"
#include "troupe/callbacks/json_lines/result_json.hpp"
#include "troupe/callbacks/mlflow/mlflow.hpp"
#include "troupe/callbacks/prometheus/prometheus.hpp"
#include "troupe/callbacks/tensorboard/tensorboard.hpp"
#include "troupe/callbacks/tracking/tracker.hpp"
#include "troupe/callbacks/wandb/wandb.hpp"
