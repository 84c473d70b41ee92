#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "troupe/runtime/error.hpp"

namespace troupe::internal {

/// A value of a config, without its type.
struct config_value {
  using list = std::vector<config_value>;
  using table = std::vector<std::pair<std::string, config_value>>;

  /// Nothing is an optional without a value.
  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double,
               std::string, list, table>
    value;
};

/// What a field of a config can hold.
enum class config_kind {
  flag,
  integer,
  real,
  text,
  path,
  choice, ///< One of the names of an enum.
  list,
  table,    ///< Values of one type by name.
  group,    ///< A struct with fields of its own.
  optional, ///< A value or nothing.
  count,    ///< A `worker_count`, as text.
};

struct config_shape {
  config_kind kind = config_kind::text;
  std::int64_t min = 0;            ///< Of an integer.
  std::uint64_t max = 0;           ///< Of an integer.
  double largest = 0;              ///< Of a real that is finite.
  std::optional<std::size_t> size; ///< Of a list that cannot grow.
  std::vector<std::string> names;  ///< Of choices, or of a group's fields.
  /// Shapes of a group's fields, or the one of all elements.
  std::vector<config_shape> parts;
  std::string initial;    ///< How its default is shown, if not as its value.
  bool is_hidden = false; ///< Not shown by `--help`.
};

/// Values of fields as text, by the names of the fields: that of a nested one
/// is `optimizer.lr`.
using field_texts = std::vector<std::pair<std::string, std::string>>;

/// The *values* of a group's fields, of shape *shape*, with those of *texts* in
/// their place, written as on a command line. Errors name the field.
expected<config_value> with_texts(const config_shape& shape,
                                  config_value values,
                                  const field_texts& texts);

/// The number that *x* is written as, such as 0.1 for 0.1f, not
/// 0.10000000149011612; as a float it is *x*.
double shortest_double(float x);

/// *x* as JSON. NaN and infinities are the bare words that cereal writes.
std::string json_text(const config_value& x);

/// A config as trackers show it, in *json* as cereal wrote it; if its fields
/// have no names, a sentence that says how to give them some.
std::string named_config_text(std::string json);

} // namespace troupe::internal
