#pragma once

// For sources only: the JSON library stays out of headers that others include.

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/process/secrets.hpp"
#include "troupe/runtime/storage/json.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

// The options of a tracker are saved in the run's folder, so that `troupe sync`
// builds the same tracker. Their struct lists them once, for both directions,
// and leaves out credentials:
//
//     struct csv_options {
//       std::string file = "metrics.csv";
//
//       template <class Visitor>
//       void visit(Visitor& option) {
//         option.harmless("file", file); // what is shown and how
//         option("address", address);    // a program, server, path or profile
//       }
//     };
//
// Anyone who can write to the folder can change what is saved there, so
// `troupe sync` takes only the harmless options from it.
//
// An enumeration has a function `option_names` beside it, which returns the
// names of its values in order.

/// The name of *x* in options.
template <class Enum>
std::string_view option_name(Enum x) {
  return option_names(x)[static_cast<std::size_t>(x)];
}

/// Writes the options that it visits as JSON. An `optional` without value is
/// left out, and so are user and password of an address: a run's folder holds
/// no credentials.
class option_writer {
public:
  template <class T>
  void operator()(const char* name, const T& x) {
    if constexpr (std::is_enum_v<T>)
      json_[name] = option_name(x);
    else if constexpr (std::is_same_v<T, fs::path>)
      json_[name] = x.string();
    else if constexpr (std::is_same_v<T, std::string>)
      json_[name] = without_user(x);
    else
      json_[name] = x;
  }

  template <class T>
  void operator()(const char* name, const std::optional<T>& x) {
    if (x)
      (*this)(name, *x);
  }

  void operator()(const char* name, std::chrono::seconds x) {
    json_[name] = x.count();
  }

  template <class T>
  void harmless(const char* name, const T& x) {
    (*this)(name, x);
  }

  /// Bytes that are not UTF-8 become U+FFFD.
  std::string text() const { return json::text_of(json_); }

private:
  json::document json_ = json::document::object();
};

/// Reads what an `option_writer` wrote into the options that it visits. Options
/// that are missing keep their value. Throws `std::exception` for a text or a
/// value that cannot be read.
class option_reader {
public:
  explicit option_reader(const std::string& text)
    : json_(json::document::parse(text)) {}

  template <class T>
  void operator()(const char* name, T& x) const {
    if (auto i = json_.find(name); i != json_.end())
      read(name, *i, x);
  }

  template <class T>
  void harmless(const char* name, T& x) const {
    (*this)(name, x);
  }

private:
  template <class T>
  static void read(const char* name, const json::document& from, T& x) {
    if constexpr (std::is_enum_v<T>)
      x = value_called<T>(name, from.get<std::string>());
    else if constexpr (std::is_same_v<T, fs::path>)
      x = from.get<std::string>();
    else if constexpr (std::is_same_v<T, std::chrono::seconds>)
      x = T{from.get<typename T::rep>()};
    else
      x = from.get<T>();
  }

  template <class T>
  static void read(const char* name, const json::document& from,
                   std::optional<T>& x) {
    read(name, from, x.emplace());
  }

  template <class Enum>
  static Enum value_called(const char* name, std::string_view text) {
    auto names = option_names(Enum{});
    auto found = std::find(names.begin(), names.end(), text);
    if (found != names.end())
      return static_cast<Enum>(found - names.begin());
    throw std::invalid_argument{
      concat(name, ": '", text, "' is none of ", joined(names))};
  }

  json::document json_;
};

/// The JSON of *options*.
template <class Options>
std::string options_json(Options options) {
  option_writer result;
  options.visit(result);
  return result.text();
}

/// The inverse. Throws `std::exception` for a text that cannot be read.
template <class Options>
Options read_options(const std::string& text) {
  Options result;
  option_reader reader{text};
  result.visit(reader);
  return result;
}

/// Collects the names of the harmless options that it visits.
class harmless_names {
public:
  template <class T>
  void operator()(const char*, const T&) {}

  template <class T>
  void harmless(const char* name, const T&) {
    names.emplace_back(name);
  }

  std::vector<std::string_view> names;
};

template <class Options>
std::vector<std::string_view> harmless_options() {
  harmless_names result;
  Options{}.visit(result);
  return result.names;
}

/// Builds a sink from the JSON of its options. Throws as `read_options`.
template <class Sink>
std::unique_ptr<sink> sink_from_json(const std::string& options) {
  return std::make_unique<Sink>(
    read_options<typename Sink::options_type>(options));
}

} // namespace troupe::internal
