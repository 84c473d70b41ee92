#pragma once

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

namespace troupe::internal::test {

/// Sets variables of this process and restores them at the end.
class environment_guard {
public:
  explicit environment_guard(
    const std::map<std::string, std::string>& changes) {
    for (auto& [name, value] : changes) {
      auto old = std::getenv(name.c_str());
      before_[name] = old ? std::optional<std::string>{old} : std::nullopt;
      ::setenv(name.c_str(), value.c_str(), 1);
    }
  }

  ~environment_guard() {
    for (auto& [name, value] : before_)
      if (value)
        ::setenv(name.c_str(), value->c_str(), 1);
      else
        ::unsetenv(name.c_str());
  }

  environment_guard(const environment_guard&) = delete;
  environment_guard& operator=(const environment_guard&) = delete;

private:
  std::map<std::string, std::optional<std::string>> before_;
};

} // namespace troupe::internal::test
