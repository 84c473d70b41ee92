#include "goal.hpp"

#include "numbers.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal::bench {

bool goal::reached_by(const figure& x) const {
  auto ratio = x.ratio();
  return (!max_value || x.value <= *max_value)
         && (!min_value || x.value >= *min_value)
         && (!max_ratio || (ratio && *ratio <= *max_ratio))
         && (!min_ratio || (ratio && *ratio >= *min_ratio));
}

std::string goal::text(const std::string& unit) const {
  std::string result;
  auto add = [&](const char* sign, const std::optional<double>& bound,
                 const std::string& what) {
    if (bound)
      append_item(result, concat(sign, ' ', short_number(*bound), what));
  };
  add("<=", max_ratio, "x");
  add(">=", min_ratio, "x");
  add("<=", max_value, " " + unit);
  add(">=", min_value, " " + unit);
  return result;
}

} // namespace troupe::internal::bench
