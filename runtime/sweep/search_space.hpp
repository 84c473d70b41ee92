#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/metrics/metrics.hpp"

namespace troupe {

/// The values that a param of a sweep can have. Made by `uniform`,
/// `log_uniform`, `integers`, `log_integers` and `choice`.
struct param_range {
  enum class kind_type { real, integer, choice };

  kind_type kind = kind_type::real;
  bool is_log = false;              ///< Each order of magnitude is as likely.
  double low = 0;                   ///< Of a real.
  double high = 0;                  ///< Of a real.
  std::int64_t first = 0;           ///< Of an integer.
  std::int64_t last = 0;            ///< Of an integer, included.
  std::vector<metric_value> values; ///< Of a choice.

  bool operator==(const param_range&) const = default;
};

/// Numbers from *low* to *high*, each as likely.
param_range uniform(double low, double high);

/// Numbers from *low* to *high*, both above zero; each order of magnitude is as
/// likely: for learning rates.
param_range log_uniform(double low, double high);

/// The integers from *first* to *last*, both included.
param_range integers(std::int64_t first, std::int64_t last);

/// The same with each order of magnitude as likely; above zero.
param_range log_integers(std::int64_t first, std::int64_t last);

/// One of *values*: flags, numbers, texts, names of an enum.
param_range choice(std::vector<metric_value> values);

/// A field of a config and the values that a sweep tries for it.
struct search_param {
  std::string name; ///< Of the field; that of a nested one is `optimizer.lr`.
  param_range range;

  bool operator==(const search_param&) const = default;
};

/// What a sweep varies, in the order of its tables.
using search_space = std::vector<search_param>;

namespace internal {

/// Refuses a space without params, params of one name, bounds that are infinite
/// or in the wrong order, logarithmic ranges that are not above zero, and
/// choices without values or with one twice.
expected<void> validate(const search_space& space);

/// The value of *range* at *place* in [0, 1): the same share of places leads to
/// each value, or to each order of magnitude.
metric_value value_at(const param_range& range, double place);

/// The values of *range* for a grid: those of a choice, all integers if there
/// are at most *steps*, else *steps* values with the same distance, both ends
/// included.
std::vector<metric_value> grid_values(const param_range& range, int steps);

/// *space* as JSON text, to compare it with that of an earlier start.
std::string space_text(const search_space& space);

} // namespace internal

} // namespace troupe
