#pragma once

#include <string>
#include <vector>

#include <c10/util/Exception.h>

namespace troupe::internal::test {

/// Keeps the warnings of this thread while it exists.
class kept_warnings {
public:
  const std::vector<std::string>& all() const { return handler_.texts; }

private:
  struct handler : c10::WarningHandler {
    void process(const c10::Warning& x) override { texts.push_back(x.msg()); }
    std::vector<std::string> texts;
  };

  handler handler_;
  c10::WarningUtils::WarningHandlerGuard guard_{&handler_};
};

} // namespace troupe::internal::test
