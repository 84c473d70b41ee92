#pragma once

#include <cstdint>
#include <string>

namespace troupe {

/// How a rank failed, and where it was when it did.
struct rank_failure {
  /// New kinds go last: they travel in messages and are stored by number.
  enum class kind_type : std::uint8_t {
    exception,        ///< The train loop left by an exception; `what` has it.
    exit_code,        ///< The process called `exit(code)`.
    signal,           ///< The process was killed by signal `code`.
    thread_exception, ///< An exception left a thread that is not the loop's.
    lost,             ///< The connection went, and the process is not known to
                      ///< have ended.
    timeout,          ///< It took longer than a limit; `what` names it.
    start_failed,     ///< It never came to run its loop.
    misuse, ///< It broke a rule that all ranks share, such as reports that no
            ///< other rank matched; `what` tells.
  };

  kind_type kind = kind_type::exception;
  int code = 0;     ///< Exit code or signal; 0 for other kinds.
  std::string what; ///< Text of the exception, or more about the cause.
  int pid = 0;      ///< 0: not known.
  std::string host;

  bool operator==(const rank_failure&) const = default;
};

/// The cause in one sentence without rank, pid or host, so that ranks that
/// failed alike can be told together: `killed by signal 9 (SIGKILL)`.
std::string to_string(const rank_failure& x);

template <class Inspector>
bool inspect(Inspector& f, rank_failure& x) {
  auto get = [&x] { return static_cast<std::uint8_t>(x.kind); };
  auto set = [&x](std::uint8_t kind) {
    x.kind = static_cast<rank_failure::kind_type>(kind);
    return x.kind <= rank_failure::kind_type::misuse;
  };
  return f.object(x).fields(f.field("kind", get, set), f.field("code", x.code),
                            f.field("what", x.what), f.field("pid", x.pid),
                            f.field("host", x.host));
}

} // namespace troupe
