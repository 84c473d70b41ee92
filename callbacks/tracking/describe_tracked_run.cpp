#include "troupe/callbacks/tracking/describe_tracked_run.hpp"

#include <ctime>

#include "troupe/callbacks/tracking/config_values.hpp"

namespace troupe {

namespace {

/// *text* is UTC in ISO 8601; the epoch if it is not.
std::chrono::system_clock::time_point to_time(const std::string& text) {
  std::tm utc{};
  if (!strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &utc))
    return {};
  return std::chrono::system_clock::from_time_t(timegm(&utc));
}

} // namespace

tracked_run describe_tracked_run(const run_description& x,
                                 const fs::path& run_path) {
  tracked_run result;
  result.name = x.name;
  result.path = run_path;
  result.id = x.id;
  result.config = config_values(x.config);
  result.tags = {{"troupe.run_uid", x.id},
                 {"troupe.storage_path", run_path.string()},
                 {"troupe.version", x.troupe},
                 {"user", x.user},
                 {"host", x.host},
                 {"program", x.program}};
  result.start_time = to_time(x.begun);
  return result;
}

} // namespace troupe
