#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/run/result.hpp"
#include "troupe/runtime/run/saved_run.hpp"

namespace troupe {

/// The result of the run in *path* with state *x*, whose rank 0 reported
/// *last_metrics* last.
result make_result(const saved_run& x, const fs::path& path,
                   metrics last_metrics);

/// *x* as the result of a run that ended with *status* for *reason* (unset: it
/// finished), which *problem* kept from being stored.
result unsaved_result(result x, run_status_kind status,
                      std::optional<run_error> reason, const error& problem);

/// What ends the reason for which run *name* was stopped or preempted: what
/// resumes it.
std::string text_of_resuming(const std::string& name);

/// The result of a run that failed for *reason* before it had a folder.
result failed_result(error reason);

/// The exception that is being handled, as an error that begins with *what*.
/// For the edges that let nothing through.
error caught(std::string_view what) noexcept;

} // namespace troupe
