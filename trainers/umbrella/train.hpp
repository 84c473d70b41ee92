#pragma once

// All that a program without LibTorch needs to train: configs, the trainer, the
// context of its loops, callbacks, results.

#include "troupe/callbacks/user_callback.hpp"
#include "troupe/runtime/metrics/aggregate.hpp"
#include "troupe/runtime/run/result.hpp"
#include "troupe/runtime/run/run_error.hpp"
#include "troupe/runtime/run/run_failed.hpp"
#include "troupe/trainers/data_parallel_trainer.hpp"
#include "troupe/trainers/init.hpp"
#include "troupe/trainers/tracking_handle.hpp"
#include "troupe/trainers/train_context.hpp"
