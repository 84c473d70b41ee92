#pragma once

#include <string>

#include "troupe/callbacks/report_page/journal_digest.hpp"

namespace troupe {

/// Everything that the page's script draws, as JSON:
///
///   begin        milliseconds since 1970, UTC; all other times are seconds
///                since then
///   attempts     [{n, x, t}]: number, first report, when it began
///   checkpoints  [{name, x, t, best}]: report, when
///   axes         [{x, t, gaps, of}]: report or step and time of each point;
///                positions where the line is broken; how many samples each
///                point stands for, if not one
///   groups       {name: {over, charts: [{title, unit, curves: [{label, axis,
///                mean, min, max, bad}]}]}}: `min` and `max` only where they
///                differ from the mean; `bad`: positions of points with values
///                that were not finite
///
/// *best* is the name of the best checkpoint, or empty.
std::string chart_data(const journal_digest& x, const std::string& best);

} // namespace troupe
