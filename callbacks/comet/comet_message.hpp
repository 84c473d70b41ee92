#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "troupe/callbacks/comet/comet_options.hpp"
#include "troupe/callbacks/tracking/sink.hpp"

namespace troupe {

/// One thing that Comet is told: a point of a metric, a parameter, an `other`
/// (Comet's word for a value without history), or a file.
struct comet_message {
  enum class kind : std::uint8_t { metric, parameter, other, asset };

  kind what = kind::metric;
  std::string name;
  metric_value value; ///< Of an asset: its bytes, unless there is a file.
  std::optional<std::int64_t> step;
  std::int64_t time_ms = 0;
  std::optional<fs::path> file = {}; ///< Of an asset.
  bool is_image = false;

  bool operator==(const comet_message&) const = default;
};

/// What Comet is told of records, in order.
class comet_messages {
public:
  explicit comet_messages(const comet_options& options) : options_(options) {}

  /// What is to be said of *x*; a text that is as it was is left out. Fails if
  /// a file is gone.
  expected<std::vector<comet_message>> of(const tracker_record& x);

  static std::vector<comet_message> parameters(const metrics& values,
                                               std::int64_t time_ms);

private:
  void add_values(std::vector<comet_message>& to, const metrics& values,
                  std::int64_t step, std::int64_t time_ms);
  void add_other(std::vector<comet_message>& to, const std::string& name,
                 const std::string& text, std::int64_t time_ms);

  comet_options options_;
  std::map<std::string, std::string> others_; ///< As they were told last.
};

/// *value* as Comet's JSON has it: NaN and infinities as texts, flags as
/// numbers.
std::string comet_json(const metric_value& value);

/// Leaves the latest point of each metric, and all other messages. *all* holds
/// the messages of records, in the records' order.
void keep_latest_points(
  std::map<std::uint64_t, std::vector<comet_message>>& all);

} // namespace troupe
