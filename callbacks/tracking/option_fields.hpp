#pragma once

// For sources only: the JSON library stays out of headers that others include.

#include <chrono>
#include <optional>
#include <string>
#include <type_traits>

#include "troupe/callbacks/tracking/option_text.hpp"
#include "troupe/runtime/fs.hpp"

namespace troupe {

/// Writes a tracker's options as JSON. A tracker lists its options once, in a
/// function that takes this or an `option_reader`:
///
///     template <class Visitor, class Options>
///     void visit_options(Visitor&& visit, Options& x) {
///       visit("project", x.project);
///     }
///
/// An enumeration needs `text_of` and `read_option`, as in option_text.hpp. An
/// `optional` without value is left out.
class option_writer {
public:
  template <class T>
  void operator()(const char* name, const T& x) {
    if constexpr (std::is_enum_v<T>)
      json_[name] = text_of(x);
    else if constexpr (std::is_same_v<T, fs::path>)
      json_[name] = x.string();
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

  /// Bytes that are not UTF-8 become U+FFFD.
  std::string text() const {
    return json_.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }

private:
  nlohmann::json json_ = nlohmann::json::object();
};

/// Reads what an `option_writer` wrote. Options that are left out keep their
/// value. Throws `std::exception` for a text or a value that cannot be read.
class option_reader {
public:
  explicit option_reader(const std::string& text)
    : json_(nlohmann::json::parse(text)) {}

  template <class T>
  void operator()(const char* name, T& x) const {
    if constexpr (std::is_same_v<T, fs::path>)
      x = read(name, x.string());
    else
      read_option(json_, name, x);
  }

  template <class T>
  void operator()(const char* name, std::optional<T>& x) const {
    if (auto text = read(name, std::string{}); !text.empty())
      read_option(text, x.emplace());
  }

  void operator()(const char* name, std::chrono::seconds& x) const {
    x = std::chrono::seconds{read(name, x.count())};
  }

private:
  template <class T>
  T read(const char* name, T otherwise) const {
    read_option(json_, name, otherwise);
    return otherwise;
  }

  nlohmann::json json_;
};

} // namespace troupe
