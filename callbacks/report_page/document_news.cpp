#include "troupe/callbacks/report_page/document_news.hpp"

#include <algorithm>
#include <cstddef>

#include "troupe/runtime/storage/json.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

using json::document;

/// Texts below are sent whole. It is also how much of a text is looked for in
/// the one before.
constexpr std::size_t short_text = 64;

document news_of(const document& old, const document& next);

document whole(const document& x) {
  return {{"is", x}};
}

/// What a browser counts in the UTF-8 text *x*.
std::size_t utf16_units(std::string_view x) {
  std::size_t result = 0;
  for (auto c : x)
    result += begins_utf8_character(c) ? 1 : 0;
  for (auto c : x) // Those with four bytes are two units.
    result += static_cast<unsigned char>(c) >= 0xF0 ? 1 : 0;
  return result;
}

/// Bytes of the characters that *a* and *b* begin with.
std::size_t common_bytes(std::string_view a, std::string_view b) {
  auto [end, of_b] = std::ranges::mismatch(a, b);
  auto result = static_cast<std::size_t>(end - a.begin());
  while (result > 0 && result < b.size() && !begins_utf8_character(b[result]))
    --result;
  while (result > 0 && result < a.size() && !begins_utf8_character(a[result]))
    --result;
  return result;
}

// The end of a log: lines are added, and the first ones go.
document news_of_text(const std::string& old, const std::string& next) {
  auto skip = common_bytes(old, next) >= short_text
                ? 0
                : old.find(std::string_view{next}.substr(0, short_text));
  if (next.size() < short_text || skip == old.npos)
    return whole(next);
  auto kept = common_bytes(std::string_view{old}.substr(skip), next);
  return {{"skip", utf16_units(std::string_view{old}.substr(0, skip))},
          {"keep", utf16_units(std::string_view{next}.substr(0, kept))},
          {"add", next.substr(kept)}};
}

/// How many elements *next* has lost at its front, if that is all that has
/// changed in what *old* had.
std::size_t lost_elements(const document& old, const document& next) {
  if (old.empty() || next.empty() || old.front() == next.front())
    return 0;
  auto first = std::find(old.begin(), old.end(), next.front());
  auto rest = old.end() - first;
  auto slides = rest > 0 && rest <= next.end() - next.begin()
                && std::equal(first, old.end(), next.begin());
  return slides ? static_cast<std::size_t>(first - old.begin()) : 0;
}

document news_of_list(const document& old, const document& next) {
  auto skip = lost_elements(old, next);
  auto keep = std::min(old.size() - skip, next.size());
  auto items = document::object();
  for (std::size_t i = 0; i < keep; ++i)
    if (auto& before = old[skip + i]; before != next[i])
      items[std::to_string(i)] = news_of(before, next[i]);
  // News of a number are longer than a number.
  if (keep == 0 || (next.front().is_primitive() && items.size() > keep / 3))
    return whole(next);
  auto add = document::array();
  for (auto i = keep; i < next.size(); ++i)
    add.push_back(next[i]);
  document result{{"skip", skip}, {"keep", keep}, {"add", std::move(add)}};
  if (!items.empty())
    result["items"] = std::move(items);
  return result;
}

document news_of_object(const document& old, const document& next) {
  auto result = document::object();
  for (auto& [name, value] : old.items())
    if (!next.contains(name))
      result["gone"].push_back(name);
  for (auto& [name, value] : next.items())
    if (auto before = old.find(name); before == old.end())
      result["fields"][name] = whole(value);
    else if (*before != value)
      result["fields"][name] = news_of(*before, value);
  return result;
}

document news_of(const document& old, const document& next) {
  if (old.is_object() && next.is_object())
    return news_of_object(old, next);
  if (old.is_array() && next.is_array())
    return news_of_list(old, next);
  if (old.is_string() && next.is_string())
    return news_of_text(old.get_ref<const std::string&>(),
                        next.get_ref<const std::string&>());
  return whole(next);
}

} // namespace

struct sent_document::content {
  document value; ///< Discarded: it cannot be read.
  std::size_t size;
};

sent_document::sent_document(std::string_view text)
  : content_(
    std::make_shared<const content>(content{json::parse(text), text.size()})) {}

std::optional<std::string>
sent_document::news_until(const sent_document& next) const {
  if (content_->value.is_discarded() || next.content_->value.is_discarded())
    return std::nullopt;
  auto result = json::text_of(news_of(content_->value, next.content_->value));
  if (result.size() >= next.content_->size)
    return std::nullopt;
  return result;
}

} // namespace troupe::internal
