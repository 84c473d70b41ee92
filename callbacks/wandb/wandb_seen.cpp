#include <charconv>
#include <functional>

#include "troupe/callbacks/wandb/wandb_records.hpp"

namespace troupe {

namespace {

// Walks over the fields of one protobuf message.
class field_reader {
public:
  explicit field_reader(std::string_view bytes) : rest_(bytes) {}

  /// Goes to the next field; false at the end and at bytes that make no sense.
  bool next() {
    std::uint64_t key = 0;
    if (rest_.empty() || !read_varint(key))
      return false;
    number = static_cast<std::uint32_t>(key >> 3);
    value = {};
    switch (key & 7) {
      case 0:
        return read_varint(integer);
      case 1:
        return take(8);
      case 2: {
        std::uint64_t size = 0;
        return read_varint(size) && take(size);
      }
      case 5:
        return take(4);
      default:
        return false;
    }
  }

  std::uint32_t number = 0;
  std::uint64_t integer = 0; ///< Of a varint.
  std::string_view value;    ///< Of a field with a length.

private:
  bool read_varint(std::uint64_t& x) {
    x = 0;
    for (auto shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      x |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80)
        return true;
    }
    return false;
  }

  bool take(std::uint64_t size) {
    if (size > rest_.size())
      return false;
    value = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return true;
  }

  std::string_view rest_;
};

void see_item(wandb_seen& result, std::string_view item) {
  std::string_view key, json;
  for (field_reader x{item}; x.next();) {
    if (x.number == 1)
      key = x.value;
    else if (x.number == 16)
      json = x.value;
  }
  auto* target = key == "_step"            ? &result.step
                 : key == wandb_report_key ? &result.report
                 : key == wandb_logged_key ? &result.logged
                                           : nullptr;
  std::int64_t value = 0;
  auto end = json.data() + json.size();
  if (target && std::from_chars(json.data(), end, value).ptr == end)
    *target = value;
}

} // namespace

wandb_seen see_wandb_record(std::string_view record) {
  constexpr std::uint32_t history = 2, exit = 18, item = 1;
  wandb_seen result;
  for (field_reader x{record}; x.next();) {
    if (x.number == exit)
      result.exit = true;
    if (x.number == history)
      for (field_reader row{x.value}; row.next();)
        if (row.number == item)
          see_item(result, row.value);
  }
  return result;
}

} // namespace troupe
