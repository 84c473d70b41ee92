#include "troupe/callbacks/tracking/make_sink.hpp"

#include <exception>
#include <map>
#include <string_view>

namespace troupe {

namespace {

using maker = std::unique_ptr<sink> (*)(const std::string&);

const std::map<std::string_view, maker>& makers() {
  static const std::map<std::string_view, maker> result{};
  return result;
}

} // namespace

expected<std::unique_ptr<sink>> make_sink(const std::string& name,
                                          const std::string& options) {
  auto found = makers().find(name);
  if (found == makers().end())
    return failure(ec::unsupported, "there is no tracker called " + name);
  try {
    return found->second(options);
  } catch (const std::exception& x) {
    return failure(ec::unsupported, "the options of tracker " + name
                                      + " can not be read: " + x.what());
  }
}

} // namespace troupe
