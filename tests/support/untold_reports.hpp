#pragma once

#include <vector>

#include "troupe/runtime/store/told_reports.hpp"

namespace troupe::test {

/// All reports that *told* has left to deliver.
inline std::vector<untold_report> take_untold(told_reports& told) {
  std::vector<untold_report> result;
  while (auto x = told.next_untold().value())
    result.push_back(std::move(*x));
  return result;
}

/// Reports of the run of *store* whose callbacks have not finished.
inline std::vector<untold_report> untold_reports(run_store& store) {
  auto told = told_reports::open(store).value();
  return take_untold(told);
}

} // namespace troupe::test
