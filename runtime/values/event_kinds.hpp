#pragma once

#include <string_view>

/// Kinds of events that the run itself writes into its journal; those that
/// loops log for trackers are in loop_record.hpp.
namespace troupe::internal::event_kind {

inline constexpr std::string_view attempt_begun = "attempt_begun";
inline constexpr std::string_view run_ended = "run_ended";

/// Whether the run itself writes events of this *kind*. Readers of its journal
/// rely on them: a train loop cannot log one.
bool is_of_the_run(std::string_view kind) noexcept;

} // namespace troupe::internal::event_kind
