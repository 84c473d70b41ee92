#include "troupe/runtime/hosts/environment_map.hpp"

#include <unistd.h>

#include "troupe/runtime/text.hpp"
#include "troupe/runtime/whole_number.hpp"

namespace troupe::internal {

environment_map own_environment() {
  environment_map result;
  for (char** entry = environ; entry && *entry; ++entry) {
    std::string_view text{*entry};
    if (auto equals = text.find('='); equals != text.npos)
      result.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return result;
}

std::optional<std::string_view>
environment_reader::text_of(std::string_view name) const {
  auto i = variables_.find(name);
  if (i == variables_.end() || i->second.empty())
    return std::nullopt;
  return i->second;
}

expected<std::optional<std::int64_t>>
environment_reader::number_of(std::string_view name) const {
  auto text = text_of(name);
  if (!text)
    return std::nullopt;
  auto result = whole_number<std::int64_t>(*text);
  if (!result || *result < 0 || *result > UINT32_MAX)
    return failure(ec::invalid_config,
                   concat(name, '=', cut_text(*text, 100),
                          " is not a number from 0 to ", UINT32_MAX));
  return result;
}

} // namespace troupe::internal
