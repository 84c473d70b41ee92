#pragma once

#include <cstdint>
#include <optional>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/process/processes.hpp"
#include "troupe/runtime/storage/held_folder.hpp"

namespace troupe::internal {

/// How a run or a sweep is to end.
enum class end_kind : std::uint8_t {
  abort,   ///< At once.
  preempt, ///< With time for a last checkpoint.
  finish,  ///< It has trained enough. Not for a sweep.
};

/// Asks the driver of a run to end it: the file `end_request` in the run's
/// folder, which no other user can write to. The driver looks once a second.
/// It needs no socket, and so reaches drivers on other hosts, too.
struct end_request {
  process_identity driver; ///< Any other one drops it: it came too late.
  end_kind how = end_kind::abort;
};

/// Replaces an earlier request. Several processes may send at once.
expected<void> send_end_request(const held_folder& run, const end_request& x);

/// Removes what was sent to the driver *me* or an earlier one, and returns the
/// former.
expected<std::optional<end_request>>
take_end_request(const held_folder& run, const process_identity& me);

} // namespace troupe::internal
