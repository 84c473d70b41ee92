#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "troupe/callbacks/tracking/record_reader.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe {

/// How far a tracker has taken a run's journal: the content of
/// `sinks/<name>.offset`.
struct sink_position {
  std::uint64_t offset =
    0; ///< Byte of the journal after the last record taken.
  std::int64_t time_us = 0; ///< Of that record, microseconds since 1970.
  /// Of that record; unset in files of earlier versions.
  std::optional<std::uint64_t> attempt;
  std::string line_end; ///< Last bytes of the journal before *offset*.
  std::string state;    ///< The sink's own.
  loop_words words;     ///< Of the records so far.
};

/// Replaces the file *path* durably.
expected<void> save_position(const sink_position& x, const fs::path& path);

/// Nothing if there is no such file yet.
expected<std::optional<sink_position>> load_position(const fs::path& path);

/// The last bytes before *offset* of the file *journal*, enough to tell one
/// line from another; empty at the file's begin.
expected<std::string> line_end_at(const fs::path& journal,
                                  std::uint64_t offset);

/// Where to go on in the journal of the run in *run_path* after *x*: at its
/// offset, or, where the journal lost its tail to a power cut and grew again,
/// at the first line that was written later: by a later attempt, or by the same
/// one at a later time. The clock alone does not tell; it may have been set
/// back.
expected<std::uint64_t> resume_offset(const sink_position& x,
                                      const fs::path& run_path);

} // namespace troupe
