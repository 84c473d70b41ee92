#pragma once

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

} // namespace troupe::internal
