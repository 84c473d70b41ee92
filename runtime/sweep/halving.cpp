#include "troupe/runtime/sweep/halving.hpp"

#include <algorithm>
#include <limits>

#include "troupe/runtime/counted.hpp"
#include "troupe/runtime/metrics/metrics.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

expected<void> validate(const halving_options& x) {
  auto refuse = [](const char* name, auto least, auto got) {
    return failure(ec::invalid_config, concat("halving.", name, " must be >= ",
                                              least, ", got ", got));
  };
  if (x.min_reports < 1)
    return refuse("min_reports", 1, x.min_reports);
  if (x.reduction < 2)
    return refuse("reduction", 2, x.reduction);
  if (x.max_reports && *x.max_reports < x.min_reports)
    return refuse("max_reports", x.min_reports, *x.max_reports);
  return {};
}

std::uint64_t halving::reports_of(std::size_t rung) const {
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  auto result = options_.min_reports;
  auto factor = static_cast<std::uint64_t>(options_.reduction);
  for (std::size_t i = 0; i < rung; ++i)
    result = result > most / factor ? most : result * factor;
  return result;
}

std::optional<halving::entry>
halving::judge(std::size_t trial, std::uint64_t reports, double value) {
  auto& next = next_[trial];
  if (reports < reports_of(next))
    return std::nullopt;
  // A report that an earlier driver stored, but did not judge, is passed over.
  while (reports >= reports_of(next + 1)
         && reports_of(next + 1) > reports_of(next))
    ++next;
  entry x{trial, next, value, true, reports_of(next)};
  add(x);
  auto& values = rungs_[x.rung];
  auto better = std::ranges::count_if(
    values, [&](double other) { return is_better(other, value, order_); });
  auto factor = static_cast<std::size_t>(options_.reduction);
  auto places = (values.size() + factor - 1) / factor;
  x.continues = static_cast<std::size_t>(better) < places;
  return x;
}

std::optional<halving::entry> halving::restore(entry x) {
  if (x.reports > 0) {
    x.rung = 0;
    while (reports_of(x.rung) < x.reports)
      ++x.rung;
    if (reports_of(x.rung) != x.reports) {
      auto& next = next_[x.trial];
      next = std::max(next, x.rung);
      return std::nullopt;
    }
  }
  add(x);
  return x;
}

void halving::add(const entry& x) {
  if (rungs_.size() <= x.rung)
    rungs_.resize(x.rung + 1);
  rungs_[x.rung].push_back(x.value);
  auto& next = next_[x.trial];
  next = std::max(next, x.rung + 1);
}

std::string halving::reason_of(const entry& x) const {
  return concat(to_string(metric_value{x.value}),
                " is not among the best 1 in ", options_.reduction, " of ",
                rungs_[x.rung].size(), " trials that have made ",
                counted(reports_of(x.rung), "report"));
}

} // namespace troupe::internal
