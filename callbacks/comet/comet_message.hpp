#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "troupe/callbacks/comet/comet.hpp"
#include "troupe/callbacks/tracking/sink.hpp"

namespace troupe::internal {

/// One message to Comet: a point of a metric, a parameter, an `other` (Comet's
/// word for a value without history), or a file.
struct comet_message {
  enum class kind : std::uint8_t { metric, parameter, other, asset };

  kind what = kind::metric;
  std::string name;
  metric_value value; ///< Of an asset without `file`: its bytes.
  std::optional<std::int64_t> step;
  std::int64_t time_ms = 0;
  std::optional<fs::path> file = {}; ///< Of an asset.
  bool is_image = false;

  bool operator==(const comet_message&) const = default;
};

/// Converts records to messages, in order.
class comet_messages {
public:
  explicit comet_messages(const comet_options& options) : options_(options) {}

  /// The messages for *x*; leaves out texts that have not changed. Fails if a
  /// file no longer exists.
  expected<std::vector<comet_message>> of(const tracker_record& x);

  static std::vector<comet_message> parameters(const metrics& values,
                                               std::int64_t time_ms);

private:
  void add_values(std::vector<comet_message>& to, const metrics& values,
                  std::int64_t step, std::int64_t time_ms);
  void add_other(std::vector<comet_message>& to, const std::string& name,
                 const std::string& text, std::int64_t time_ms);

  comet_options options_;
  std::map<std::string, std::string> others_; ///< The latest of each name.
};

/// *value* as Comet takes it: flags are numbers.
metric_value comet_value(const metric_value& value);

/// Keeps the latest point of each metric of the records up to *last*, and all
/// other messages. *all* holds the messages of each record, in the records'
/// order. Returns whether points were removed.
bool keep_latest_points(
  std::map<std::uint64_t, std::vector<comet_message>>& all, std::uint64_t last);

/// The destination of Comet's messages: its service or an archive.
class comet_backend {
public:
  virtual ~comet_backend() = default;

  /// Creates the experiment, or continues the one of *state*.
  virtual sink_result start(const std::string& state) = 0;

  /// As those of a sink.
  virtual std::vector<std::string> take_notes() { return {}; }

  /// Sends *messages* in order; `accepted` of a failure counts messages.
  virtual sink_result send(std::span<const comet_message> messages) = 0;

  /// How many points of metrics can be sent at once and in *span* after that.
  /// If records of that span have more, they come faster than they can be sent,
  /// and the points of a metric may be thinned out.
  virtual std::size_t room(std::chrono::duration<double> span) = 0;

  /// Ends the experiment; it can be started again.
  virtual sink_result finish(std::chrono::system_clock::time_point time) = 0;

  virtual std::string state() const = 0;
};

} // namespace troupe::internal
