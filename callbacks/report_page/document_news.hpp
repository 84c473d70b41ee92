#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::internal {

/// A JSON document that a page was sent, to say later what of it has changed.
/// Copies share it.
class sent_document {
public:
  explicit sent_document(std::string_view text);

  /// What makes *next* of this document, for `changed` of `page/live.js`:
  ///
  ///   {is}                      another value
  ///   {gone, fields}            of an object: names that it loses, and news or
  ///                             new values by name
  ///   {skip, keep, items, add}  of a list: *keep* elements after the first
  ///                             *skip* stay, those at *items* with news; the
  ///                             list *add* follows
  ///   {skip, keep, add}         of a text, which counts in UTF-16
  ///
  /// `gone`, `fields` and `items` are missing if they are empty. Returns
  /// nothing if *next* itself is as short.
  std::optional<std::string> news_until(const sent_document& next) const;

private:
  struct content;

  std::shared_ptr<const content> content_;
};

} // namespace troupe::internal
