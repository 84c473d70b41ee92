#pragma once

#include <vector>

#include "troupe/runtime/store/callback_cursor.hpp"

namespace troupe::internal::test {

/// All reports that *cursor* has yet to deliver.
inline std::vector<pending_report> take_pending(callback_cursor& cursor) {
  std::vector<pending_report> result;
  while (auto x = cursor.next_pending().value())
    result.push_back(std::move(*x));
  return result;
}

/// Reports of the run of *store* whose callbacks have not finished.
inline std::vector<pending_report> pending_reports(run_store& store) {
  auto cursor = callback_cursor::open(store).value();
  return take_pending(cursor);
}

} // namespace troupe::internal::test
