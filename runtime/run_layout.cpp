#include "troupe/runtime/run_layout.hpp"

#include <cstddef>
#include <cstdint>

#include "troupe/runtime/whole_number.hpp"

namespace troupe::internal::run_layout {

namespace {

bool ends_as_event_file(std::string_view name) noexcept {
  constexpr std::size_t id_size = 8;
  auto at = name.rfind('-');
  return at != name.npos && at > id_size && name[at - id_size - 1] == '.'
         && is_hex(name.substr(at - id_size, id_size))
         && whole_number<std::uint64_t>(name.substr(at + 1));
}

} // namespace

std::string_view plain_name(std::string_view name) noexcept {
  auto dot = name.rfind('.');
  if (dot == name.npos || dot == 0)
    return name;
  auto ending = name.substr(dot + 1);
  return is_digits(ending) || ending == "new" ? name.substr(0, dot) : name;
}

std::optional<entry_kind> kind_of(std::string_view name) noexcept {
  if (name.starts_with(owner_prefix))
    return entry_kind::file;
  auto plain = plain_name(name);
  for (auto& x : entries) {
    auto is_file = x.kind == entry_kind::file || x.kind == entry_kind::proof;
    if (x.name == name || (is_file && x.name == plain))
      return x.kind;
  }
  return std::nullopt;
}

bool is_own_name(std::string_view name) noexcept {
  return kind_of(name).has_value();
}

bool is_event_file(std::string_view name) noexcept {
  return name.starts_with(event_prefix) && ends_as_event_file(name);
}

bool is_former_event_file(std::string_view name) noexcept {
  return name.starts_with(former_event_prefix)
         && ends_as_event_file(plain_name(name));
}

} // namespace troupe::internal::run_layout
