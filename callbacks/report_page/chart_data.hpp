#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "troupe/callbacks/report_page/journal_digest.hpp"

namespace troupe::internal {

namespace json {
class object_writer;
}

/// Appends the fields of a page's data that its curves are drawn from:
///
///   groups   {name: {over, charts: [{title, unit, curves: [{label, axis, mean,
///            min, max, bad, total}]}]}}: `min` and `max` only where they
///            differ from the mean; `bad`: positions of points with values that
///            were not finite; `total`: [last, at, lowest, highest, number of
///            reports] of all samples
///   axes     [{x, t, gaps, of}]: report or step and time of each point;
///            positions where the line is broken; how many samples each point
///            stands for, if not one
void append_charts(json::object_writer& out, const journal_digest& x);

/// A run among others.
struct labeled_digest {
  std::string label;
  const journal_digest* digest;
};

/// The same fields with charts of several runs: one per metric, with a curve of
/// each run that has it. `label` is the run's, `run` its position in *all*;
/// there are no times. Returns how many names were left out, so that the page
/// stays below some megabytes.
std::size_t append_compared_charts(json::object_writer& out,
                                   std::span<const labeled_digest> all);

} // namespace troupe::internal
