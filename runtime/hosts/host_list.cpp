#include "troupe/runtime/hosts/host_list.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <set>

#include <arpa/inet.h>

#include "troupe/runtime/text.hpp"
#include "troupe/runtime/whole_number.hpp"

namespace troupe::internal {

namespace {

constexpr std::string_view decimal_digits = "0123456789";
constexpr std::string_view blanks = " \t\r";

/// Longest name of a host, as in DNS.
constexpr std::size_t max_host_name = 253;

bool is_letter_or_digit(char c) noexcept {
  return is_letter(c) || is_digit(c);
}

bool is_same_name(std::string_view a, std::string_view b) noexcept {
  return in_lower_case(a) == in_lower_case(b);
}

struct ipv6_address {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  std::string_view zone;

  bool operator==(const ipv6_address&) const = default;
};

std::optional<ipv6_address> parse_ipv6(std::string_view text) noexcept {
  ipv6_address result;
  auto zone = text.find('%');
  if (zone != text.npos) {
    result.zone = text.substr(zone + 1);
    if (result.zone.empty() || result.zone.size() > 15
        || !std::ranges::all_of(result.zone, [](char c) {
             return is_letter_or_digit(c) || c == '-' || c == '_' || c == '.';
           }))
      return std::nullopt;
  }
  auto address = text.substr(0, zone);
  char terminated[INET6_ADDRSTRLEN] = {};
  if (address.size() >= sizeof(terminated))
    return std::nullopt;
  std::ranges::copy(address, terminated);
  if (::inet_pton(AF_INET6, terminated, result.bytes.data()) != 1)
    return std::nullopt;
  return result;
}

/// The numbers *first* to *last* of a bracket, with at least *width* digits.
struct number_range {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::size_t width = 0;

  std::uint64_t size() const noexcept { return last - first + 1; }

  std::string at(std::uint64_t index) const {
    auto number = concat(first + index);
    return std::string(width - std::min(width, number.size()), '0') + number;
  }
};

using bracket = std::vector<number_range>;

/// A name with brackets: *texts* has one more element than *brackets*.
struct name_pattern {
  std::vector<std::string> texts;
  std::vector<bracket> brackets;
};

/// Reads a list of hosts and remembers where it is.
class host_list_reader {
public:
  host_list_reader(std::string_view text, std::string_view what)
    : text_(text), what_(what) {}

  expected<std::vector<std::string>> read() {
    if (without_blanks(text_).empty())
      return failure(ec::invalid_config, concat(what_, ": no host is named"));
    for (;;) {
      TROUPE_TRY_VOID(read_part());
      if (at_ == text_.size())
        return std::move(hosts_);
      ++at_; // the comma
    }
  }

private:
  tl::unexpected<error> mistake(std::size_t at, std::string_view sentence) {
    return failure(ec::invalid_config,
                   concat(what_, " \"", cut_text(text_, 200),
                          "\": at character ", at + 1, ": ", sentence));
  }

  char next() const noexcept { return at_ < text_.size() ? text_[at_] : '\0'; }

  void skip_blanks() {
    at_ = std::min(text_.find_first_not_of(blanks, at_), text_.size());
  }

  expected<void> read_part() {
    skip_blanks();
    auto begin = at_;
    auto end = std::min(text_.find_first_of("[,", at_), text_.size());
    auto has_colon = text_.substr(at_, end - at_).find(':') != text_.npos;
    if (has_colon || is_address_in_brackets()) {
      TROUPE_TRY(auto address, read_address());
      TROUPE_TRY_VOID(add(std::move(address), begin));
    } else {
      TROUPE_TRY(auto pattern, read_pattern());
      TROUPE_TRY_VOID(add_all(pattern, begin));
    }
    skip_blanks();
    if (at_ < text_.size() && text_[at_] != ',')
      return mistake(at_, "a comma is missing between two hosts");
    return {};
  }

  bool is_address_in_brackets() const {
    auto end = text_.find(']', at_);
    return next() == '[' && end != text_.npos
           && text_.substr(at_, end - at_).find(':') != text_.npos;
  }

  /// With or without brackets.
  expected<std::string> read_address() {
    auto begin = at_;
    auto in_brackets = next() == '[';
    auto end = std::min(text_.find(in_brackets ? ']' : ',', at_), text_.size());
    at_ = end + (in_brackets ? 1 : 0);
    auto address = in_brackets
                     ? text_.substr(begin + 1, end - begin - 1)
                     : without_blanks(text_.substr(begin, end - begin));
    if (parse_ipv6(address))
      return std::string{address};
    return mistake(begin,
                   concat("\"", cut_text(address, 100),
                          "\" is not an address of IPv6, and a host has no "
                          "port here; slots are for a file of hosts, as in "
                          "\"a slots=2\""));
  }

  expected<name_pattern> read_pattern() {
    name_pattern result{{""}, {}};
    for (; at_ < text_.size(); ++at_) {
      auto c = text_[at_];
      if (c == ',' || blanks.find(c) != blanks.npos)
        break;
      if (c == ']')
        return mistake(at_, "this bracket was not opened");
      if (c != '[') {
        result.texts.back() += c;
        continue;
      }
      TROUPE_TRY(auto numbers, read_bracket());
      result.brackets.push_back(std::move(numbers));
      result.texts.emplace_back();
    }
    return result;
  }

  /// From the opening bracket to the closing one, which is not read.
  expected<bracket> read_bracket() {
    auto open = at_;
    bracket result;
    do {
      ++at_;
      TROUPE_TRY(auto numbers, read_range());
      result.push_back(numbers);
    } while (next() == ',');
    if (at_ == text_.size())
      return mistake(open, "this bracket is not closed");
    if (next() != ']')
      return mistake(at_, "a comma or a closing bracket is expected");
    return result;
  }

  expected<number_range> read_range() {
    auto begin = at_;
    number_range result;
    TROUPE_TRY(result.first, read_number());
    result.width = at_ - begin;
    result.last = result.first;
    if (next() == '-') {
      ++at_;
      TROUPE_TRY(result.last, read_number());
    }
    if (result.last < result.first)
      return mistake(begin, "the range ends before it begins");
    if (result.last - result.first >= max_hosts)
      return mistake(begin, too_many());
    return result;
  }

  expected<std::uint64_t> read_number() {
    auto begin = at_;
    auto end =
      std::min(text_.find_first_not_of(decimal_digits, at_), text_.size());
    at_ = end;
    if (end == begin)
      return mistake(begin, "a number is expected");
    auto result = whole_number<std::uint64_t>(text_.substr(begin, end - begin));
    if (!result || *result > UINT64_MAX / 2 || end - begin > max_host_name)
      return mistake(begin, "the number is too large");
    return *result;
  }

  static std::string too_many() {
    return concat("these are more than ", max_hosts, " hosts");
  }

  expected<void> add_all(const name_pattern& pattern, std::size_t position) {
    std::vector<std::vector<std::string>> choices;
    std::size_t count = 1;
    for (const auto& numbers : pattern.brackets) {
      auto& choice = choices.emplace_back();
      for (const auto& range : numbers) {
        if (choice.size() + range.size() > max_hosts)
          return mistake(position, too_many());
        for (std::uint64_t i = 0; i < range.size(); ++i)
          choice.push_back(range.at(i));
      }
      // Both factors are within the limit.
      if (count *= choice.size(); count > max_hosts)
        return mistake(position, too_many());
    }
    for (std::size_t i = 0; i < count; ++i)
      TROUPE_TRY_VOID(add(name_at(pattern, choices, i), position));
    return {};
  }

  /// The last bracket turns fastest, then the others from the left.
  static std::string
  name_at(const name_pattern& pattern,
          const std::vector<std::vector<std::string>>& choices,
          std::size_t index) {
    std::vector<std::size_t> chosen(choices.size());
    auto take = [&](std::size_t which) {
      chosen[which] = index % choices[which].size();
      index /= choices[which].size();
    };
    if (!choices.empty())
      take(choices.size() - 1);
    for (std::size_t i = 0; i + 1 < choices.size(); ++i)
      take(i);
    auto result = pattern.texts.front();
    for (std::size_t i = 0; i < choices.size(); ++i)
      result += choices[i][chosen[i]] + pattern.texts[i + 1];
    return result;
  }

  expected<void> add(std::string name, std::size_t position) {
    if (name.empty())
      return mistake(position, "a host is missing");
    if (!is_host_name(name))
      return mistake(position, no_host_text(name));
    if (hosts_.size() == max_hosts)
      return mistake(position, too_many());
    if (!known_.insert(name).second)
      return mistake(position, concat("host ", name, " is named twice"));
    hosts_.push_back(std::move(name));
    return {};
  }

  std::string_view text_;
  std::string_view what_;
  std::size_t at_ = 0;
  std::vector<std::string> hosts_;
  std::set<std::string> known_;
};

} // namespace

bool is_host_name(std::string_view text) noexcept {
  if (text.find(':') != text.npos)
    return parse_ipv6(text).has_value();
  auto is_allowed = [](char c) {
    return is_letter_or_digit(c) || c == '-' || c == '_' || c == '.';
  };
  return !text.empty() && text.size() <= max_host_name
         && std::ranges::all_of(text, is_allowed) && text.front() != '-'
         && text.front() != '.' && text.find("..") == text.npos;
}

std::string no_host_text(std::string_view text) {
  auto has_user = text.find('@') != text.npos;
  return concat("\"", cut_text(text, 100), "\" is not the name of a host",
                has_user ? ": give its user in ~/.ssh/config" : "");
}

bool is_host_address(std::string_view name) noexcept {
  return name.find_first_not_of("0123456789.") == name.npos
         || name.find(':') != name.npos;
}

bool may_be_same_host(std::string_view a, std::string_view b) noexcept {
  if (is_same_name(a, b))
    return true;
  // One address of IPv6 has many spellings.
  if (auto left = parse_ipv6(a))
    return left == parse_ipv6(b);
  if (is_host_address(a) || is_host_address(b))
    return false;
  auto [shorter, longer] =
    std::minmax(a, b, [](auto x, auto y) { return x.size() < y.size(); });
  return longer.substr(shorter.size()).starts_with('.')
         && is_same_name(longer.substr(0, shorter.size()), shorter);
}

expected<std::vector<std::string>> expand_host_list(std::string_view text,
                                                    std::string_view what) {
  return host_list_reader{text, what}.read();
}

std::string to_short_text(const std::vector<std::string>& names) {
  if (names.empty())
    return "none";
  const auto& first = names.front();
  auto prefix = first.substr(0, first.find_last_not_of(decimal_digits) + 1);
  auto number = std::string_view{first}.substr(prefix.size());
  auto begin = whole_number<std::uint64_t>(number);
  auto in_order = begin.has_value();
  number_range range{begin.value_or(0), begin.value_or(0), number.size()};
  for (std::size_t i = 0; in_order && i < names.size(); ++i)
    in_order = names[i] == prefix + range.at(i);
  if (names.size() > 2 && in_order)
    return concat(first, '-', names.back());
  return listed(names, names.size() <= 4 ? 4 : 3);
}

} // namespace troupe::internal
