#pragma once

#include <string>
#include <vector>

#include "troupe/callbacks/report_page/journal_digest.hpp"
#include "troupe/callbacks/report_page/run_facts.hpp"

namespace troupe::internal {

/// Everything that a report page shows, as one JSON object, which the
/// script of `page/` draws:
///
///   name, status, error   `error` is empty without one
///   complaints    what could not be shown, as sentences
///   begin         milliseconds since 1970, UTC; null without an entry. All
///                 other times are seconds since then
///   end           when the last entry was written
///   reports       how many
///   world         ranks of the last report; 0: not known
///   groups, axes  the curves, see `append_charts`
///   texts         [[name, text]], as are config and environment
///   ranks         [[mean, longest, last, reports]]: seconds per report of each
///   attempts      {count, last: [{n, x, t, reports, resume, failure}]}: n is
///                 the number, x the first report, t when it began
///   checkpoints   {committed, left, keep, by, order, marks: [{name, x, t,
///                 best}], columns, rows: [{name, x, attempt, t, took, best,
///                 latest, values}]}: `left`, and how many are kept by what
///                 score, only if the state is known; marks are for charts
///   events        {count, last: [{kind, t, attempt, what}]}
///   logs          [{file, text, whole}]
///
/// NaN and infinities are null. Fields without information are left out of
/// rows and marks.
std::string page_data(const run_facts& facts, const journal_digest& digest);

/// How the run ended, or that it runs, as far as its folder says.
std::string status_of(const run_facts& facts, const journal_digest& digest);

/// Why it did not finish; empty: not known.
std::string error_of(const run_facts& facts, const journal_digest& digest);

/// What of it could not be read or is not shown, as sentences.
std::vector<std::string> complaints_of(const run_facts& facts,
                                       const journal_digest& digest);

/// The run in a line, for a page that cannot be drawn: "finished: 20 reports of
/// 2 ranks, 1 attempt, 4 checkpoints, 30.0 s".
std::string summary_line(const run_facts& facts, const journal_digest& digest);

} // namespace troupe::internal
