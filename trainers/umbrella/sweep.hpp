#pragma once

// For programs that search for the best config: sweeps.

#include "troupe/runtime/sweep/halving.hpp"
#include "troupe/runtime/sweep/search_space.hpp"
#include "troupe/runtime/sweep/searcher.hpp"
#include "troupe/runtime/sweep/sweep_result.hpp"
#include "troupe/runtime/sweep/trial.hpp"
#include "troupe/train.hpp"
#include "troupe/trainers/sweep/sweep.hpp"
