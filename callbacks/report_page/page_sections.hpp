#pragma once

#include <string>

#include "troupe/callbacks/report_page/html_text.hpp"
#include "troupe/callbacks/report_page/journal_digest.hpp"
#include "troupe/callbacks/report_page/run_facts.hpp"

namespace troupe {

// What of a report page can be read without its script. Each function appends
// the sections that its name says.

/// Name, status and the numbers people ask for first; what could not be read;
/// why the run failed.
void append_overview(html_text& out, const run_facts& facts,
                     const journal_digest& digest);

/// Places for the curves of metrics, and their last values as a table.
void append_metrics(html_text& out, const journal_digest& digest);

/// Places for the curves of times, and each rank's times as a table.
void append_times(html_text& out, const journal_digest& digest);

/// The checkpoints that are kept, the best first.
void append_checkpoints(html_text& out, const run_facts& facts,
                        const journal_digest& digest);

/// Attempts and events.
void append_history(html_text& out, const journal_digest& digest);

/// Config, environment and the last lines of the logs.
void append_facts(html_text& out, const run_facts& facts,
                  const journal_digest& digest);

/// Name of the best checkpoint; empty: there is none, or not known.
std::string best_checkpoint(const run_facts& facts);

} // namespace troupe
