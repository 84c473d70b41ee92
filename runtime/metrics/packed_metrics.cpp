#include "troupe/runtime/metrics/packed_metrics.hpp"

#include <bit>
#include <cstddef>
#include <cstring>
#include <utility>

namespace troupe::internal {

// An entry is the length of the name (4 bytes), the name, the kind of the value
// (1 byte, its index in `metric_value::variant_type`) and 8 bytes: the value,
// or the length of the text that follows. Numbers are as they are in memory;
// ranks and driver run on the same kind of machine.

namespace {

constexpr std::size_t name_head = sizeof(std::uint32_t);
constexpr std::size_t value_head = 1 + sizeof(std::uint64_t);
constexpr std::uint8_t text_kind = 3;
static_assert(std::variant_size_v<metric_value::variant_type> == text_kind + 1);

/// What an entry takes beside its name and text, and a name of usual length.
constexpr std::size_t usual_size = name_head + value_head + 27;

template <class T>
void put(std::string& out, T x) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &x, sizeof(T));
  out.append(bytes, sizeof(T));
}

template <class T>
T number_at(const char* x) noexcept {
  T result;
  std::memcpy(&result, x, sizeof(T));
  return result;
}

std::uint64_t bits_of(const metric_value::variant_type& x) noexcept {
  switch (x.index()) {
    case 0:
      return *std::get_if<bool>(&x) ? 1 : 0;
    case 1:
      return static_cast<std::uint64_t>(*std::get_if<std::int64_t>(&x));
    case 2:
      return std::bit_cast<std::uint64_t>(*std::get_if<double>(&x));
    default:
      return std::get_if<std::string>(&x)->size();
  }
}

/// Length of the first entry of *x*; nothing if it is damaged.
std::optional<std::size_t> length_of_first(std::string_view x) noexcept {
  if (x.size() < name_head)
    return std::nullopt;
  auto head = name_head + number_at<std::uint32_t>(x.data()) + value_head;
  if (x.size() < head)
    return std::nullopt;
  auto value = x.data() + head - value_head;
  auto kind = static_cast<std::uint8_t>(*value);
  if (kind > text_kind)
    return std::nullopt;
  auto text = kind == text_kind ? number_at<std::uint64_t>(value + 1) : 0;
  if (text > x.size() - head)
    return std::nullopt;
  return head + static_cast<std::size_t>(text);
}

/// Whether *x* is entries from begin to end, in order of their names.
bool is_valid(std::string_view x) noexcept {
  std::optional<std::string_view> last;
  while (!x.empty()) {
    auto length = length_of_first(x);
    if (!length)
      return false;
    auto name = x.substr(name_head, number_at<std::uint32_t>(x.data()));
    if (last && *last >= name)
      return false;
    last = name;
    x.remove_prefix(*length);
  }
  return true;
}

metric_value to_metric(const packed_metrics::value& x) {
  return std::visit([](auto value) { return metric_value{value}; }, x);
}

} // namespace

packed_metrics::packed_metrics(const metrics& x) {
  if (x.empty())
    return;
  std::string bytes;
  bytes.reserve(x.size() * usual_size);
  for (auto& [name, value] : x) {
    auto& content = value.variant();
    put(bytes, static_cast<std::uint32_t>(name.size()));
    bytes += name;
    bytes += static_cast<char>(content.index());
    put(bytes, bits_of(content));
    if (auto text = std::get_if<std::string>(&content))
      bytes += *text;
  }
  bytes_ = std::make_shared<const std::string>(std::move(bytes));
}

bool packed_metrics::assign(std::string bytes) {
  if (!is_valid(bytes))
    return false;
  bytes_ = bytes.empty()
             ? nullptr
             : std::make_shared<const std::string>(std::move(bytes));
  return true;
}

const std::string& packed_metrics::bytes() const noexcept {
  static const std::string none;
  return bytes_ ? *bytes_ : none;
}

metrics packed_metrics::unpacked() const {
  metrics::map_type result;
  for_each([&](std::string_view name, const value& x) {
    result.emplace_hint(result.end(), name, to_metric(x));
  });
  return metrics{std::move(result)};
}

std::optional<metric_value> packed_metrics::find(std::string_view name) const {
  std::optional<metric_value> result;
  any_of([&](std::string_view its, const value& x) {
    if (its == name)
      result = to_metric(x);
    return its >= name;
  });
  return result;
}

std::optional<double> packed_metrics::find_number(std::string_view name) const {
  auto found = find(name);
  return found && found->is_number() ? std::optional{found->number()}
                                     : std::nullopt;
}

packed_metrics::entry packed_metrics::take(std::string_view& rest) noexcept {
  entry result;
  result.name = rest.substr(name_head, number_at<std::uint32_t>(rest.data()));
  rest.remove_prefix(name_head + result.name.size());
  auto kind = static_cast<std::uint8_t>(rest[0]);
  auto bits = number_at<std::uint64_t>(rest.data() + 1);
  rest.remove_prefix(value_head);
  switch (kind) {
    case 0:
      result.content = bits != 0;
      break;
    case 1:
      result.content = static_cast<std::int64_t>(bits);
      break;
    case 2:
      result.content = std::bit_cast<double>(bits);
      break;
    default:
      result.content = rest.substr(0, static_cast<std::size_t>(bits));
      rest.remove_prefix(static_cast<std::size_t>(bits));
  }
  return result;
}

std::vector<packed_metrics> packed(const std::vector<metrics>& ranks) {
  return {ranks.begin(), ranks.end()};
}

std::vector<metrics> unpacked(const std::vector<packed_metrics>& ranks) {
  std::vector<metrics> result;
  result.reserve(ranks.size());
  for (auto& x : ranks)
    result.push_back(x.unpacked());
  return result;
}

} // namespace troupe::internal
