#include "troupe/callbacks/wandb/wandb_item.hpp"

#include <cmath>

#include "troupe/callbacks/encoding/text.hpp"

namespace troupe {

std::string wandb_json(const metric_value& x) {
  std::string result;
  auto number = std::get_if<double>(&x.variant());
  if (!number) {
    append_json(result, x);
    return result;
  }
  if (std::isnan(*number))
    return "NaN";
  if (std::isinf(*number))
    return *number > 0 ? "Infinity" : "-Infinity";
  append_number(result, *number);
  if (result.find_first_of(".e") == std::string::npos)
    result += ".0"; // stays a double when it is read
  return result;
}

std::string wandb_config_json(const metric_value& x) {
  auto number = std::get_if<double>(&x.variant());
  return number && !std::isfinite(*number) ? "null" : wandb_json(x);
}

} // namespace troupe
