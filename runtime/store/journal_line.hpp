#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/report/report.hpp"
#include "troupe/runtime/values/journal_entry.hpp"

namespace troupe::internal {

// The lines of a journal. The first is `{"journal":1,"sum":"…"}`, the format;
// the others are
//   {"batch":7,"attempt":0,"time_us":…,"values":[{…},…],
//    "step_us":[…],"wait_us":…,"checkpoint":"…","checkpoint_us":…,"sum":"…"}
//   {"event":"…","attempt":0,"time_us":…,"fields":{…},"sum":"…"}
// with `time_us` in microseconds since 1970, UTC; of a batch the line may lack
// what comes after `values`. `sum` is the last field of
// each: see `append_sum`.

/// Version of the format; a reader refuses any other.
inline constexpr int journal_format = 1;

void append_header_line(std::string& out);

void append_batch_line(std::string& out, std::uint64_t attempt,
                       std::int64_t time_us, const report_batch& batch,
                       std::string_view checkpoint, double checkpoint_s);

void append_event_line(std::string& out, std::uint64_t attempt,
                       std::int64_t time_us, std::string_view kind,
                       const metrics& fields);

/// The numbers at the begin of a line.
struct journal_line_head {
  std::optional<std::uint64_t> index; ///< Report index of a batch.
  std::uint64_t attempt = 0;
  std::int64_t time_us = 0;
};

/// Reads the head without parsing the rest; nothing for the first line.
std::optional<journal_line_head> parse_line_head(std::string_view line);

/// As a number of ranks: all there are.
inline constexpr std::size_t all_ranks = static_cast<std::size_t>(-1);

/// Checks and parses a line; nothing for the first one. *what* names file and
/// line in the error. Of a batch, the ranks behind the first *ranks* get no
/// values: to parse them is most of the work with many ranks.
expected<std::optional<journal_entry>>
parse_line(std::string_view line, const std::string& what,
           std::size_t ranks = all_ranks);

} // namespace troupe::internal
