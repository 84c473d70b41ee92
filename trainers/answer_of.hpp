#pragma once

#include <type_traits>
#include <utility>

#include "troupe/actors/compat/messaging.hpp"
#include "troupe/runtime/error.hpp"

namespace troupe::internal {

/// Waits for the answer to what `request` has sent for a blocking actor.
/// *explain* converts a `caf::error`.
template <class Answer, class Request, class Explain>
expected<Answer> answer_of(Request sent, Explain explain) {
  expected<Answer> result = failure(ec::protocol, "no answer");
  auto fail = [&](const caf::error& reason) {
    result = tl::unexpected<error>{explain(reason)};
  };
  if constexpr (std::is_void_v<Answer>)
    std::move(sent).receive([&] { result = {}; }, fail);
  else
    std::move(sent).receive([&](Answer& x) { result = std::move(x); }, fail);
  return result;
}

} // namespace troupe::internal
