#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <nlohmann/json.hpp>

#include "troupe/runtime/enum_value.hpp"
#include "troupe/runtime/error.hpp"
#include "troupe/runtime/metrics/packed_metrics.hpp"
#include "troupe/runtime/text.hpp"

// For sources only: the JSON library stays out of headers that others include.

namespace troupe::internal::json {

// Appends JSON to a string without building a document first; the journal
// writes tens of thousands of lines a second this way. Types survive exactly: a
// double always has a point or an exponent, values that JSON lacks are objects:
// {"float":"nan"}, "inf", "-inf"; {"bytes":"<hex>"} for a text that is not
// UTF-8. A name that is not UTF-8 becomes "\u0000<hex>": no valid name holds a
// control character.

void append(std::string& out, std::string_view text);
void append(std::string& out, std::uint64_t x);
void append(std::string& out, const metric_value& x);
void append(std::string& out, const metrics& x);
void append(std::string& out, const packed_metrics& x);

/// Appends the name of a field; any bytes are valid, unlike in
/// `object_writer::begin`.
void append_name(std::string& out, std::string_view name);

/// A time as whole microseconds.
void append_us(std::string& out, double seconds);

/// Appends a list. Calls *append_one* with the text so far and each element of
/// *all*; *between* stands between two elements.
template <class Range, class F>
void append_list(std::string& out, Range&& all, F append_one,
                 std::string_view between = ",") {
  std::string_view separator;
  out += '[';
  for (auto&& x : all) {
    out += separator;
    append_one(out, x);
    separator = between;
  }
  out += ']';
}

/// Appends an object with the entries of the map *all*. Calls *append_key* and
/// *append_one* with the text so far and the name, or the value, of each;
/// *between* stands between two entries.
template <class Map, class Key, class F>
void append_object(std::string& out, Map&& all, Key append_key, F append_one,
                   std::string_view between = ",") {
  std::string_view separator;
  out += '{';
  for (auto&& [key, x] : all) {
    out += separator;
    append_key(out, key);
    out += ':';
    append_one(out, x);
    separator = between;
  }
  out += '}';
}

/// One object of a document, appended field by field: adds names and commas.
/// Names are plain ASCII.
class object_writer {
public:
  /// *between* stands between two fields.
  explicit object_writer(std::string& out, std::string_view between = ",")
    : out_(out), between_(between) {
    out_ += '{';
  }

  /// An integer, a text, a metric value or metrics, packed or not.
  template <class T>
  object_writer& field(std::string_view name, const T& x) {
    begin(name);
    if constexpr (std::is_integral_v<T>)
      append_number(out_, x);
    else if constexpr (std::is_convertible_v<const T&, std::string_view>)
      append(out_, std::string_view{x});
    else
      append(out_, x);
    return *this;
  }

  object_writer& null_field(std::string_view name) {
    begin(name) += "null";
    return *this;
  }

  /// A field with a list, as `append_list` appends it.
  template <class Range, class F>
  object_writer& array_field(std::string_view name, const Range& all,
                             F append_one, std::string_view between = ",") {
    append_list(begin(name), all, append_one, between);
    return *this;
  }

  /// Appends a field's name; its value is to follow.
  std::string& begin(std::string_view name) {
    if (out_.back() != '{') // no value ends with one
      out_ += between_;
    out_ += '"';
    out_ += name;
    out_ += "\":";
    return out_;
  }

  /// Ends the object. One that gets a checksum (`append_sum`) ends with it.
  void end() { out_ += '}'; }

private:
  std::string& out_;
  std::string_view between_;
};

/// An element of `object_writer::array_field`.
inline constexpr auto append_text = [](std::string& out, std::string_view x) {
  append(out, x);
};

using document = nlohmann::json;

/// An object whose fields stay in the order in which they were set.
using ordered_document = nlohmann::ordered_json;

/// The document that *text* is. One that is not JSON is discarded: of no type.
document parse(std::string_view text);

/// *x* for other programs: bytes that are not UTF-8 become U+FFFD. What is to
/// be read back exactly is written by `append`.
template <class Document = ordered_document>
std::string text_of(const Document& x, int indent = -1) {
  return x.dump(indent, ' ', false, Document::error_handler_t::replace);
}

/// *x* for other programs: NaN and infinities are the texts "NaN", "Infinity"
/// and "-Infinity".
ordered_document value_of(const metric_value& x);

/// Thrown below `read`, which makes it `ec::corrupt`.
class format_error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Thrown for a format that this version does not know; `read` makes it
/// `ec::unsupported`: the file may be whole, and no one should repair it.
class unknown_format : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The field *name* of *object*; `format_error` if there is none.
const document& field(const document& object, const char* name);

std::uint64_t to_unsigned(const document& x);

/// An integer that *T* holds.
template <std::integral T>
T to_integer(const document& x) {
  if (x.is_number_unsigned()
        ? std::in_range<T>(x.get<std::uint64_t>())
        : x.is_number_integer() && std::in_range<T>(x.get<std::int64_t>()))
    return x.get<T>();
  throw format_error{x.dump() + " is not an integer of the right size"};
}

/// A text as `json::append` wrote it, UTF-8 or not.
std::string to_text(const document& x);

/// What `append_name` has written.
std::string to_name(const std::string& x);

/// 64 bits as `checksum_text` wrote them.
std::uint64_t to_checksum(const document& x);

/// *x*, the number of a value of an enum, comes from a later version.
unknown_format unknown_code(const document& x);

/// The value of an enum that was written as its number: at most that of *last*,
/// otherwise `unknown_format`.
template <class Enum>
Enum to_enum(const document& x, Enum last) {
  auto number = to_unsigned(x);
  if (number > static_cast<std::uint64_t>(last))
    throw unknown_code(x);
  return static_cast<Enum>(number);
}

/// The same of an enum that travels in messages, too: its `inspect` knows the
/// last value.
template <class Enum>
Enum to_enum(const document& x) {
  if (auto value = enum_value<Enum>(to_unsigned(x)))
    return *value;
  throw unknown_code(x);
}

/// What `json::append` wrote, with every type as it was.
metric_value to_value(const document& x);
metrics to_metrics(const document& x);

/// Throws `unknown_format` unless the document's *name*, its format, is
/// *known*, or an earlier one from *oldest* on.
void check_format(const document& x, int known, const char* name = "format",
                  std::optional<int> oldest = {});

/// Parses *text* and calls *convert* with the document. Any failure is
/// `ec::corrupt` with a sentence that begins with *what*.
template <class T, class Convert>
expected<T> read(std::string_view text, const std::string& what,
                 Convert convert) {
  try {
    return convert(document::parse(text));
  } catch (const unknown_format& e) {
    return failure(ec::unsupported, what + ' ' + e.what());
  } catch (const std::exception& e) {
    return failure(ec::corrupt, what + " is malformed: " + e.what());
  }
}

} // namespace troupe::internal::json
