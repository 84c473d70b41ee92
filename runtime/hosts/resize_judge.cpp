#include "troupe/runtime/hosts/resize_judge.hpp"

#include "troupe/runtime/text.hpp"

namespace troupe::internal {

std::optional<std::string> resize_judge::reported(bool has_checkpoint) const {
  auto may_leave =
    policy_ == resize_policy::at_once
    || (policy_ == resize_policy::next_checkpoint && has_checkpoint);
  if (!may_leave || possible_ <= ranks_)
    return std::nullopt;
  return concat("the run grows from ", ranks_, " to ", possible_, " ranks");
}

} // namespace troupe::internal
