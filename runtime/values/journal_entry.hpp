#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "troupe/runtime/each_field.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/metrics/metrics.hpp"

namespace troupe {

/// One report batch of a run, as its journal has it.
struct journaled_batch {
  std::uint64_t index = 0;   ///< Report index.
  std::uint64_t attempt = 0; ///< Attempt that reported it.
  std::chrono::system_clock::time_point time;
  std::vector<metrics> values; ///< One entry per rank, ordered by rank.
  std::string checkpoint;      ///< Name of its checkpoint; empty: none.
  /// Seconds each rank's loop ran since its previous report, ordered by rank;
  /// empty: not known.
  std::vector<double> step_s;
  double wait_s = 0; ///< Seconds from the first rank's arrival to the last's.
  double checkpoint_s = 0; ///< Seconds that committing the checkpoint took.
};

/// An event of a run, as its journal has it.
struct journal_event {
  std::string kind; ///< snake_case, such as `attempt_begun`.
  std::uint64_t attempt = 0;
  std::chrono::system_clock::time_point time;
  metrics fields;
};

namespace internal {

/// One line of a journal: a report batch or an event.
using journal_entry = std::variant<journaled_batch, journal_event>;

/// Kind of an event whose field `text` is shown on the console, too.
inline constexpr const char* warning_kind = "warning";

} // namespace internal

/// An event that a train loop adds to the run's journal.
struct loop_event {
  std::string kind; ///< snake_case; begins with `tracker_`, or `warning_kind`.
  metrics fields;

  bool operator==(const loop_event&) const = default;
};

namespace internal {

/// The human-readable text of *x*, if it is a warning.
inline std::optional<std::string> text_of_warning(const loop_event& x) {
  auto text = x.fields.find("text");
  if (x.kind != warning_kind || !text)
    return std::nullopt;
  return to_string(*text);
}

} // namespace internal

TROUPE_INSPECT(loop_event, kind, fields)

namespace internal {

/// Kinds of events that the run itself writes into its journal and that code
/// reads; those that loops log for trackers are in loop_record.hpp.
namespace event_kind {

inline constexpr std::string_view attempt_begun = "attempt_begun";
inline constexpr std::string_view attempt_left = "attempt_left";
inline constexpr std::string_view driver_lost = "driver_lost";
inline constexpr std::string_view host_lost = "host_lost";
inline constexpr std::string_view journal_completed = "journal_completed";
inline constexpr std::string_view preempted = "preempted";
inline constexpr std::string_view ranks_failed = "ranks_failed";
inline constexpr std::string_view run_ended = "run_ended";
inline constexpr std::string_view stop_decided = "stop_decided";

/// Whether the run itself writes events of this *kind*. Readers of its journal
/// rely on them: a train loop cannot log one.
bool is_of_the_run(std::string_view kind) noexcept;

} // namespace event_kind

/// A repair of a run's files: a rotten checkpoint set aside, a journal's tail
/// cut. Each is recorded in the journal.
struct store_event {
  std::string kind;    ///< snake_case, such as `checkpoint_rotten`.
  metrics fields;      ///< Names, paths, reasons.
  bool stored = false; ///< In the journal already.
  std::string text;    ///< Human-readable; empty: its kind's sentence.

  bool operator==(const store_event&) const = default;
};

/// Records such events.
using store_event_listener = std::function<expected<void>(store_event)>;

inline expected<void> ignore_store_event(store_event) {
  return {};
}

/// The human-readable sentence about an event of this *kind*, as console and
/// report page show it; nothing if the kind has none.
std::optional<std::string> event_sentence(std::string_view kind,
                                          const metrics& fields);

/// A human-readable line.
std::string to_string(const store_event& x);

} // namespace internal

} // namespace troupe
