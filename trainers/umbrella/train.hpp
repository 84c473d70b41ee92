#pragma once

// Everything that a program without LibTorch needs to train: configs, the
// trainer, the context of its loops, callbacks, results.

#include "troupe/callbacks/user_callback.hpp"
#include "troupe/runtime/metrics/metrics.hpp"
#include "troupe/runtime/store/result.hpp"
#include "troupe/runtime/values/run_error.hpp"
#include "troupe/trainers/config/fields.hpp"
#include "troupe/trainers/data_parallel_trainer.hpp"
#include "troupe/trainers/early_stopping.hpp"
#include "troupe/trainers/init.hpp"
#include "troupe/trainers/parse_config.hpp"
#include "troupe/trainers/return_value.hpp"
#include "troupe/trainers/tracking_handle.hpp"
#include "troupe/trainers/train_context.hpp"
#include "troupe/trainers/train_state.hpp"
