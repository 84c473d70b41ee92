#include "troupe/runtime/process/secrets.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

constexpr std::size_t shortest_secret = 4;

/// A shorter secret may also be a part of an ordinary word or path.
constexpr std::size_t shortest_part = 8;
constexpr std::string_view mask = "***";
constexpr std::string_view blank_characters = " \t\n\r\f\v";

bool is_blank(char c) {
  return blank_characters.find(c) != blank_characters.npos;
}

bool is_word(char c) {
  return is_letter(c) || is_digit(c) || c == '_';
}

constexpr auto lower = [](char c) { return in_lower_case(c); };

/// A position in a text that advances over what a rule matches. Each character
/// is visited a bounded number of times, for any text.
class cursor {
public:
  cursor(std::string_view text, std::size_t at) : text_(text), at_(at) {}

  std::size_t at() const { return at_; }

  /// *word*, in lower case, in any case.
  bool take(std::string_view word) {
    if (text_.size() - at_ < word.size()
        || !std::ranges::equal(text_.substr(at_, word.size()), word, {}, lower))
      return false;
    at_ += word.size();
    return true;
  }

  bool take_one_of(std::string_view characters) {
    auto found =
      at_ < text_.size() && characters.find(text_[at_]) != characters.npos;
    at_ += found ? 1 : 0;
    return found;
  }

  /// As many as there are; how many.
  template <class Is>
  std::size_t take_all(Is is) {
    auto begin = at_;
    while (at_ < text_.size() && is(text_[at_]))
      ++at_;
    return at_ - begin;
  }

  bool begins_word() const {
    return at_ == 0 || at_ == text_.size() || !is_word(text_[at_ - 1]);
  }

private:
  std::string_view text_;
  std::size_t at_;
};

/// Where values end. A value that many rules match is walked only once.
class value_ends {
public:
  explicit value_ends(std::string_view text) : text_(text) {}

  template <class Is>
  std::size_t operator()(std::size_t at, Is is) {
    if (at >= begin_ && at < end_)
      return end_;
    begin_ = end_ = at;
    while (end_ < text_.size() && is(text_[end_]))
      ++end_;
    return end_;
  }

private:
  std::string_view text_;
  std::size_t begin_ = 0; // of the last one
  std::size_t end_ = 0;
};

/// The part of a text that a mask replaces.
struct secret_range {
  std::size_t begin = 0;
  std::size_t end = 0;
};

using finding = std::optional<secret_range>;

bool is_value(char c) {
  return !is_blank(c) && c != '"' && c != '\'' && c != ',' && c != '}';
}

// `= "`, `': '` and the like, which stand before a value.
bool take_assignment(cursor& x, std::string_view signs) {
  x.take_one_of("\"'");
  x.take_all(is_blank);
  if (!x.take_one_of(signs))
    return false;
  x.take_all(is_blank);
  x.take_one_of("\"'");
  return true;
}

// The user info of a URL: `://` to the last `@` before its path.
finding user_info_at(std::string_view text, std::size_t at, value_ends&) {
  cursor x{text, at};
  if (!x.take("://"))
    return std::nullopt;
  auto begin = x.at();
  x.take_all([](char c) {
    return !is_blank(c) && c != '/' && c != '?' && c != '#' && c != '"'
           && c != '\'';
  });
  auto end = text.substr(begin, x.at() - begin).rfind('@');
  if (end == text.npos)
    return std::nullopt;
  return secret_range{begin, begin + end};
}

// `Authorization: Basic abc`
finding authorization_at(std::string_view text, std::size_t at,
                         value_ends& ends) {
  cursor x{text, at};
  if (!x.take("authorization") || !take_assignment(x, ":="))
    return std::nullopt;
  auto begin = x.at();
  // The scheme is included.
  cursor scheme = x;
  if (scheme.take_all(is_letter) > 0
      && scheme.take_all([](char c) { return c == ' '; }) > 0)
    if (auto end = ends(scheme.at(), is_value); end > scheme.at())
      return secret_range{begin, end};
  if (auto end = ends(begin, is_value); end > begin)
    return secret_range{begin, end};
  return std::nullopt;
}

// `Bearer abcdefgh`, anywhere.
finding scheme_at(std::string_view text, std::size_t at, value_ends&) {
  cursor x{text, at};
  if (!x.begins_word() || !(x.take("bearer") || x.take("basic")))
    return std::nullopt;
  auto is_token = [](char c) {
    constexpr std::string_view others = "+/._~=-";
    return is_letter(c) || is_digit(c) || others.find(c) != others.npos;
  };
  if (x.take_all(is_blank) == 0)
    return std::nullopt;
  auto begin = x.at();
  if (x.take_all(is_token) < 8)
    return std::nullopt;
  return secret_range{begin, x.at()};
}

// `token=abc`, `"api_key": "abc"` and their like, in queries, forms and JSON.
finding field_at(std::string_view text, std::size_t at, value_ends& ends) {
  cursor x{text, at};
  auto begins_word = x.begins_word();
  auto is_named = false;
  auto may_be_prose = false; // "unknown token: 'abc'"
  if (x.take("api")) {
    x.take_one_of("_-");
    is_named = x.take("key");
  } else if (x.take("token") || x.take("signature")) {
    is_named = may_be_prose = true;
  } else {
    is_named =
      x.take("secret") || x.take("password") || (begins_word && x.take("sig"));
  }
  if (may_be_prose) {
    auto sign = x;
    if (sign.take_one_of(":") && sign.take_all(is_blank) > 0)
      return std::nullopt;
  }
  if (!is_named || !take_assignment(x, "=:"))
    return std::nullopt;
  auto begin = x.at();
  auto end = ends(begin, [](char c) { return is_value(c) && c != '&'; });
  if (end == begin)
    return std::nullopt;
  return secret_range{begin, end};
}

/// Adds what *find* finds to *to*; *first* are the characters, in lower case,
/// at which it can begin.
template <class Find>
void collect(std::vector<secret_range>& to, std::string_view text,
             std::string_view first, Find find) {
  value_ends ends{text};
  for (std::size_t i = 0; i < text.size(); ++i)
    if (first.find(lower(text[i])) != first.npos)
      if (auto found = find(text, i, ends))
        to.push_back(*found);
}

void collect(std::vector<secret_range>& to, std::string_view text,
             std::string_view secret) {
  if (secret.size() < shortest_secret)
    return;
  auto is_part = [&](std::size_t at) {
    return at < text.size() && (is_word(text[at]) || text[at] == '/');
  };
  for (auto i = text.find(secret); i != text.npos;
       i = text.find(secret, i + secret.size()))
    if (secret.size() >= shortest_part
        || (!(i > 0 && is_part(i - 1)) && !is_part(i + secret.size())))
      to.push_back({i, i + secret.size()});
}

/// Adds the longest prefix of *secret* that *text* ends with.
void collect_cut(std::vector<secret_range>& to, std::string_view text,
                 std::string_view secret) {
  for (auto size = std::min(secret.size(), text.size());
       size >= shortest_secret; --size) {
    auto begin = text.size() - size;
    auto is_part = begin > 0 && is_word(text[begin - 1]);
    if (text.ends_with(secret.substr(0, size))
        && (size >= shortest_part || !is_part))
      return to.push_back({begin, text.size()});
  }
}

/// Adds what the rules find in *text*. Each sees the whole text, because one
/// might remove what another needs.
void collect_by_rules(std::vector<secret_range>& to, std::string_view text) {
  collect(to, text, ":", user_info_at);
  collect(to, text, "a", authorization_at);
  collect(to, text, "b", scheme_at);
  collect(to, text, "atsp", field_at);
}

/// *text* with one mask for what is in one or more of *ranges*.
std::string masked(std::string_view text, std::vector<secret_range> ranges) {
  std::ranges::sort(ranges, {}, &secret_range::begin);
  std::string result;
  std::size_t copied = 0;
  for (auto i = ranges.begin(); i != ranges.end();) {
    auto range = *i;
    for (++i; i != ranges.end() && i->begin < range.end; ++i)
      range.end = std::max(range.end, i->end);
    result += text.substr(copied, range.begin - copied);
    result += mask;
    copied = range.end;
  }
  return result += text.substr(copied);
}

} // namespace

redactor::redactor() : secrets_(secret_values()) {}

std::string redactor::operator()(std::string_view text) const {
  return without(text, {});
}

std::string redactor::without(std::string_view text,
                              std::string_view secret) const {
  std::vector<secret_range> ranges;
  collect(ranges, text, secret);
  for (const auto& value : secrets_)
    collect(ranges, text, value);
  collect_by_rules(ranges, text);
  return masked(text, std::move(ranges));
}

std::string redactor::of_cut(std::string_view text) const {
  std::vector<secret_range> ranges;
  for (const auto& value : secrets_) {
    collect(ranges, text, value);
    collect_cut(ranges, text, value);
  }
  // A match may have been cut off: the rest of a token, or the `@` after a
  // password.
  collect_by_rules(ranges, std::string{text} + "xxxxxxxx@");
  std::erase_if(ranges, [&](auto& x) { return x.begin >= text.size(); });
  for (auto& x : ranges)
    x.end = std::min(x.end, text.size());
  return masked(text, std::move(ranges));
}

std::string redacted(std::string_view text) {
  return redactor{}(text);
}

std::string redacted(std::string_view text, std::string_view secret) {
  return redactor{}.without(text, secret);
}

std::string redacted_lines(std::string_view text) {
  const redactor clean;
  std::string result;
  while (!text.empty()) {
    auto size = std::min(text.find('\n'), text.size() - 1) + 1;
    result += clean(text.substr(0, size));
    text.remove_prefix(size);
  }
  return result;
}

std::string without_user(std::string_view text) {
  auto scheme = std::min(text.find("://"), text.size());
  auto host = std::min(scheme + 3, text.size());
  auto is_scheme = [](char c) {
    return is_word(c) || c == '+' || c == '-' || c == '.';
  };
  auto authority = text.substr(host, text.find_first_of("/?#", host) - host);
  auto at = authority.rfind('@');
  if (scheme == 0 || at == authority.npos
      || !std::ranges::all_of(text.substr(0, scheme), is_scheme)
      || std::ranges::any_of(authority, is_blank))
    return std::string{text};
  return std::string{text.substr(0, host)}
         + std::string{text.substr(host + at + 1)};
}

std::string shown_url(std::string_view url) {
  return redacted(without_user(url.substr(0, url.find_first_of("?#"))));
}

} // namespace troupe::internal
