#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

// An error that no one looks at is lost: the compiler warns. The class belongs
// to others, so this says so before they define it, unless they have already.
#ifndef TL_EXPECTED_HPP
namespace tl {
template <class T, class E>
class [[nodiscard]] expected;
} // namespace tl
#endif

#include <tl/expected.hpp>

#include "troupe/runtime/each_field.hpp"
#include "troupe/runtime/inspect_as.hpp"

namespace troupe {

/// What kind of failure an `error` is. New codes go last: they travel in
/// messages.
enum class ec : std::uint8_t {
  none,
  invalid_config, ///< A configuration that can never work; nothing was started.
  invalid_argument, ///< A call inside the train loop that can never work.
  not_initialized,  ///< `troupe::init` was not called.
  conflict,         ///< Another run, driver or rank holds the resource.
  storage,          ///< The run's storage refused or lost data.
  corrupt,          ///< Bytes do not match their checksum or format.
  spawn,            ///< A process could not be started.
  rank_failed,      ///< A rank ended before its train loop returned.
  callback_failed,  ///< A user callback threw and ended the run.
  protocol,         ///< A peer broke the protocol.
  timeout,          ///< Something took longer than its limit.
  stopped,          ///< The run was asked to stop.
  unsupported,      ///< This build or this host lacks the feature.
  mailbox_full,     ///< A mailbox has no room now; there may be some later.
};

namespace internal {

inline constexpr ec last_ec = ec::mailbox_full;

} // namespace internal

std::string_view to_string(ec code) noexcept;

template <class Inspector>
bool inspect(Inspector& f, ec& x) {
  return internal::inspect_enum(f, x, internal::last_ec);
}

/// A failure as a value: its kind, and one sentence that names the rank, the
/// path or the limit.
struct error {
  ec code = ec::none;
  std::string message;

  /// Whether this is a failure at all.
  explicit operator bool() const noexcept { return code != ec::none; }

  bool operator==(const error&) const = default;
};

TROUPE_INSPECT(error, code, message)

template <class T>
using expected = tl::expected<T, error>;

/// An `error` ready to be returned from a function that returns an `expected`.
inline tl::unexpected<error> failure(ec code, std::string message) {
  return tl::unexpected<error>{error{code, std::move(message)}};
}

namespace internal {

/// The exception that is being handled, as an error that begins with *what*.
/// For boundaries that no exception may cross.
error caught(std::string_view what) noexcept;

/// What the exception that is being handled says.
std::string text_of_current_exception();

} // namespace internal

} // namespace troupe

#define TROUPE_TRY_NAME_(line) troupe_try_##line
#define TROUPE_TRY_(line, declaration, ...)                                    \
  auto TROUPE_TRY_NAME_(line) = (__VA_ARGS__);                                 \
  if (!TROUPE_TRY_NAME_(line))                                                 \
    return tl::unexpected{std::move(TROUPE_TRY_NAME_(line)).error()};          \
  declaration = *std::move(TROUPE_TRY_NAME_(line))
#define TROUPE_TRY_AT_(line, ...) TROUPE_TRY_(line, __VA_ARGS__)

/// `TROUPE_TRY(auto file, open_file(path));` takes the value of an `expected`,
/// or returns its error from the calling function.
#define TROUPE_TRY(...) TROUPE_TRY_AT_(__LINE__, __VA_ARGS__)

/// `TROUPE_TRY_VOID(sync_file(file));` returns the error of an `expected`, if
/// it is one, and drops the value.
#define TROUPE_TRY_VOID(...)                                                   \
  do {                                                                         \
    if (auto troupe_tried = (__VA_ARGS__); !troupe_tried)                      \
      return tl::unexpected{std::move(troupe_tried).error()};                  \
  } while (false)
