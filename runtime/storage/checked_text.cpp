#include "troupe/runtime/storage/checked_text.hpp"

#include "troupe/runtime/storage/checksum.hpp"

namespace troupe {

namespace {

constexpr std::string_view before = ",\"sum\":\"";
constexpr std::string_view after = "\"}\n";
static_assert(before.size() + 16 + after.size() == sum_size);

} // namespace

void append_sum(std::string& open_object) {
  auto sum = checksum_text(checksum(open_object));
  open_object += before;
  open_object += sum;
  open_object += after;
}

bool has_valid_sum(std::string_view text) noexcept {
  if (text.size() <= sum_size)
    return false;
  auto body = text.substr(0, text.size() - sum_size);
  auto tail = text.substr(body.size());
  return tail.starts_with(before) && tail.ends_with(after)
         && tail.substr(before.size(), 16) == checksum_text(checksum(body));
}

expected<void> verify_sum(std::string_view text, const std::string& what) {
  if (has_valid_sum(text))
    return {};
  return failure(ec::corrupt,
                 what + " is damaged: its " + std::to_string(text.size())
                   + " bytes do not match the checksum at its end");
}

} // namespace troupe
