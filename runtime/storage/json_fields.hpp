#pragma once

#include <concepts>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "troupe/runtime/storage/json.hpp"
#include "troupe/runtime/text.hpp"

// For sources only: see json.hpp.

namespace troupe::internal::json {

// A document lists its fields once, for both directions:
//
//     template <class Fields>
//     void fields_of(Fields& f, doomed_checkpoint& x) {
//       f("name", x.name)("index", x.index);
//     }
//
// Fields are flags, integers, floating-point numbers, texts, metrics, other
// structs with fields, vectors of these, maps of them by text, and optionals,
// which may be null. What looks different in the document is a `field_as`. The
// functions are in this namespace; to write a document does not change it.

/// A field with its own functions: *write* appends the value to a text, *read*
/// takes it from a document.
template <class Write, class Read>
struct field_as {
  Write write;
  Read read;
};

/// An enum as its number, which `to_enum` reads: at most that of *last*, if one
/// is given.
template <class Enum, std::same_as<Enum>... Last>
auto number_of(Enum& x, Last... last) {
  return field_as{
    [&x](std::string& out) { append_number(out, static_cast<unsigned>(x)); },
    [&x, last...](const document& in) { x = to_enum<Enum>(in, last...); }};
}

inline double to_seconds(const document& us) {
  return static_cast<double>(to_unsigned(us)) * 1e-6;
}

/// Seconds as whole microseconds.
inline auto us_of(double& x) {
  return field_as{[&x](std::string& out) { append_us(out, x); },
                  [&x](const document& in) { x = to_seconds(in); }};
}

/// A list; *write_one* appends an element to a text, *read_one* takes it from a
/// document.
template <class T, class Write, class Read>
auto list_of(std::vector<T>& all, Write write_one, Read read_one) {
  return field_as{
    [&all, write_one](std::string& out) { append_list(out, all, write_one); },
    [&all, read_one](const document& in) {
      all.clear();
      for (auto& one : in)
        all.push_back(read_one(one));
    }};
}

/// A text: *show* returns it, *read* takes the value from a document.
template <class Show, class Read>
auto text_as(Show show, Read read) {
  return field_as{
    [show](std::string& out) { append(out, std::string_view{show()}); }, read};
}

/// The text *x*; *read* takes it from a document and checks it.
template <class Read>
auto checked(std::string& x, Read read) {
  return text_as([&x] { return std::string_view{x}; },
                 [&x, read](const document& in) { x = read(in); });
}

/// Whether the fields of a *T* are listed for *Fields*.
template <class T, class Fields>
concept has_fields = requires(Fields& f, T& x) {
  fields_of(f, x);
};

/// Appends the fields that it visits.
class field_writer {
public:
  static constexpr bool is_reading = false;

  /// *between* stands between two fields, and between two objects of a list.
  field_writer(std::string& out, std::string_view between)
    : out_(out), between_(between), object_(out, between) {}

  /// The version of the format; readers accept it, and those from *oldest* on.
  field_writer& format(int known, std::optional<int> /*oldest*/ = {}) {
    return (*this)("format", known);
  }

  template <class T>
  field_writer& operator()(const char* name, T&& x) {
    object_.begin(name);
    write(x);
    return *this;
  }

  /// A field that documents of earlier versions lack.
  template <class T>
  field_writer& added(const char* name, T&& x) {
    return (*this)(name, x);
  }

  /// A field that is left out while it has no value.
  template <class T>
  field_writer& if_set(const char* name, std::optional<T>& x) {
    return x ? (*this)(name, *x) : *this;
  }

  /// Ends the object. One that gets a checksum (`append_sum`) ends with it.
  void end() { object_.end(); }

private:
  template <class T>
  void write(T& x) {
    if constexpr (requires { x.write(out_); }) {
      x.write(out_);
    } else if constexpr (std::is_same_v<T, std::string>) {
      append(out_, std::string_view{x});
    } else if constexpr (std::is_same_v<T, bool> || std::floating_point<T>) {
      append(out_, metric_value{x});
    } else if constexpr (std::integral<T>) {
      append_number(out_, x);
    } else if constexpr (requires { append(out_, x); }) { // metrics
      append(out_, x);
    } else {
      field_writer object{out_, ","};
      fields_of(object, x);
      object.end();
    }
  }

  template <class T>
  void write(std::optional<T>& x) {
    if (x)
      write(*x);
    else
      out_ += "null";
  }

  template <class T>
  void write(std::vector<T>& all) {
    append_list(
      out_, all, [this](std::string& /*out_*/, T& x) { write(x); },
      has_fields<T, field_writer> ? between_ : ",");
  }

  template <class T>
  void write(std::map<std::string, T>& all) {
    append_object(
      out_, all, append_name, [this](std::string& /*out_*/, T& x) { write(x); },
      between_);
  }

  std::string& out_;
  std::string_view between_;
  object_writer object_;
};

/// Takes the fields that it visits from a document; throws for one that is
/// missing or of another type.
class field_reader {
public:
  static constexpr bool is_reading = true;

  explicit field_reader(const document& in) : in_(in) {}

  field_reader& format(int known, std::optional<int> oldest = {}) {
    check_format(in_, known, "format", oldest);
    return *this;
  }

  template <class T>
  field_reader& operator()(const char* name, T&& x) {
    read(field(in_, name), x);
    return *this;
  }

  template <class T>
  field_reader& added(const char* name, T&& x) {
    return in_.contains(name) ? (*this)(name, x) : *this;
  }

  template <class T>
  field_reader& if_set(const char* name, std::optional<T>& x) {
    return in_.contains(name) ? (*this)(name, x.emplace()) : *this;
  }

private:
  template <class T>
  static void read(const document& in, T& x) {
    if constexpr (requires { x.read(in); }) {
      x.read(in);
    } else if constexpr (std::is_same_v<T, std::string>) {
      x = to_text(in);
    } else if constexpr (std::is_same_v<T, bool>) {
      x = in.get<bool>();
    } else if constexpr (std::floating_point<T>) {
      auto value = to_value(in);
      x = value.is_number() ? value.number()
                            : std::numeric_limits<T>::quiet_NaN();
    } else if constexpr (std::integral<T>) {
      x = to_integer<T>(in);
    } else if constexpr (std::is_assignable_v<T&, metrics>) {
      x = to_metrics(in);
    } else {
      field_reader object{in};
      fields_of(object, x);
    }
  }

  template <class T>
  static void read(const document& in, std::optional<T>& x) {
    // Not `emplace`, of which GCC 14 warns where T has a map.
    x = in.is_null() ? std::nullopt : std::optional<T>{std::in_place};
    if (x)
      read(in, *x);
  }

  template <class T>
  static void read(const document& in, std::vector<T>& x) {
    x.clear();
    for (auto& one : in)
      read(one, x.emplace_back());
  }

  template <class T>
  static void read(const document& in, std::map<std::string, T>& x) {
    x.clear();
    for (auto& [key, value] : in.items())
      read(value, x[to_name(key)]);
  }

  const document& in_;
};

/// *x* as an object that is still open, its fields separated by *between*.
template <class T>
std::string open_object(const T& x, std::string_view between = ",\n") {
  std::string result;
  field_writer writer{result, between};
  fields_of(writer, const_cast<T&>(x)); // is only read
  return result;
}

/// What *x* is the document of.
template <class T>
T from_fields(const document& x) {
  T result;
  field_reader reader{x};
  fields_of(reader, result);
  return result;
}

} // namespace troupe::internal::json
