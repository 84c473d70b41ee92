#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <cereal/cereal.hpp>
#include <cereal/types/array.hpp>
#include <cereal/types/map.hpp>
#include <cereal/types/optional.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>

#include "troupe/runtime/config/scaling_config.hpp"
#include "troupe/runtime/each_field.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/trainers/config/config_value.hpp"

/// Names the fields of a config: `TROUPE_FIELDS(lr, epochs)` inside the struct,
/// with every member that is to travel. `run.json`, the report page and the
/// trackers then show these names, `parse_config` reads them, and cereal writes
/// and reads the struct.
///
/// A field is a flag, a number, a text, an `fs::path`, an enum with a fixed
/// type (any `enum class`; its enumerators from -1 to 126 have their names),
/// another struct with `TROUPE_FIELDS`, or a `std::optional`, `std::vector`,
/// `std::array` or `std::map` (by `std::string`) of these. A struct that
/// derives from one with fields lists those, too, in a `TROUPE_FIELDS` of its
/// own.
#define TROUPE_FIELDS(...)                                                     \
  template <class TroupeSelf, class TroupeVisitor>                             \
  static void troupe_visit_fields(TroupeSelf& troupe_self,                     \
                                  const TroupeVisitor& troupe_visit) {         \
    static_assert(::troupe::internal::are_field_names(#__VA_ARGS__),           \
                  "TROUPE_FIELDS takes the names of members, each once");      \
    ::troupe::internal::require_all_fields<                                    \
      ::std::remove_const_t<TroupeSelf>>();                                    \
    static_cast<void>(troupe_self);                                            \
    static_cast<void>(troupe_visit);                                           \
    TROUPE_EACH_FIELD(__VA_ARGS__)                                             \
  }                                                                            \
  template <class TroupeArchive>                                               \
  void serialize(TroupeArchive& troupe_archive) {                              \
    troupe_visit_fields(                                                       \
      *this,                                                                   \
      ::troupe::internal::archived_fields<TroupeArchive>{troupe_archive});     \
  }                                                                            \
  static constexpr ::std::string_view troupe_field_names() {                   \
    return #__VA_ARGS__;                                                       \
  }                                                                            \
  void troupe_lists_fields() const {}

namespace cereal {

/// Paths in configs; cereal itself knows none of Boost's.
template <class Archive, std::same_as<boost::filesystem::path> Path>
std::string save_minimal(const Archive&, const Path& x) {
  return x.string();
}

template <class Archive, std::same_as<boost::filesystem::path> Path>
void load_minimal(const Archive&, Path& x, const std::string& text) {
  x = text;
}

} // namespace cereal

namespace troupe::internal {

/// Removes the first name from *list*, whose names are separated by commas.
constexpr std::string_view next_field_name(std::string_view& list) {
  auto end = std::min(list.find(','), list.size());
  auto name = list.substr(0, end);
  list.remove_prefix(std::min(end + 1, list.size()));
  while (name.starts_with(' '))
    name.remove_prefix(1);
  while (name.ends_with(' '))
    name.remove_suffix(1);
  return name;
}

constexpr bool lists_name(std::string_view list, std::string_view name) {
  while (!list.empty())
    if (next_field_name(list) == name)
      return true;
  return false;
}

/// Whether *list* has all names of *others*.
constexpr bool lists_names(std::string_view list, std::string_view others) {
  while (!others.empty())
    if (!lists_name(list, next_field_name(others)))
      return false;
  return true;
}

/// Whether *list* has names only, separated by commas, each once.
constexpr bool are_field_names(std::string_view list) {
  for (auto rest = list; !rest.empty();) {
    auto name = next_field_name(rest);
    if (name.empty())
      return false;
    for (auto c : name)
      if (c != '_' && !is_digit(c) && !is_letter(c))
        return false;
    if (lists_name(rest, name))
      return false;
  }
  return true;
}

struct ignore_fields {
  template <class T>
  void operator()(const char*, const T&) const {}
};

/// A struct with `TROUPE_FIELDS`.
template <class T>
concept has_named_fields = requires(T& x) {
  T::troupe_visit_fields(x, ignore_fields{});
};

template <class Member>
struct owner_of_member {};
template <class Owner, class Type>
struct owner_of_member<Type Owner::*> {
  using type = Owner;
};

/// Whether *Base* is a base of *T* with fields that *T* does not list.
template <class Base, class T>
constexpr bool is_unlisted_base() {
  if constexpr (std::derived_from<T, Base> && !std::same_as<Base, T>)
    if constexpr (has_named_fields<Base>)
      return !lists_names(T::troupe_field_names(), Base::troupe_field_names());
  return false;
}

template <class T>
struct any_unlisted_base {
  template <class Base, class = std::enable_if_t<is_unlisted_base<Base, T>()>>
  operator Base() const;
};

/// An aggregate that begins with such a base. One that begins with
/// `ignore_fields` begins with anything.
template <class T>
concept has_unlisted_base = std::is_aggregate_v<T> && requires {
  T{any_unlisted_base<T>{}};
} && !requires {
  T{ignore_fields{}};
};

/// Refuses a struct that would lose fields which it has inherited.
template <class T>
constexpr void require_all_fields() {
  using owner =
    typename owner_of_member<decltype(&T::troupe_lists_fields)>::type;
  static_assert(
    std::same_as<owner, T> && !has_unlisted_base<T>,
    "this struct derives from one with TROUPE_FIELDS and would lose fields: "
    "list all, also the inherited ones, in a TROUPE_FIELDS of its own, or make "
    "the other struct a member");
}

/// An enum whose values of its type are all valid, named or not.
template <class T>
concept named_enum = std::is_enum_v<T> && requires {
  T{0};
};

template <class T>
struct field_element {};
template <class T>
struct field_element<std::optional<T>> {
  using type = T;
  static constexpr auto kind = config_kind::optional;
};
template <class T>
struct field_element<std::vector<T>> {
  using type = T;
  static constexpr auto kind = config_kind::list;
};
template <class T, std::size_t Size>
struct field_element<std::array<T, Size>> {
  using type = T;
  static constexpr auto kind = config_kind::list;
  static constexpr auto size = Size;
};
template <class T>
struct field_element<std::map<std::string, T>> {
  using type = T;
  static constexpr auto kind = config_kind::table;
};

template <class T>
concept has_elements = requires {
  typename field_element<T>::type;
};

template <class T, class... Types>
concept one_of = (std::same_as<T, Types> || ...);

template <class T>
concept character_type = one_of<T, char, wchar_t, char8_t, char16_t, char32_t>;

/// A flag or an integer.
template <class T>
concept whole_number_type = std::integral<T> && !character_type<T>;

template <class T>
concept plain_field = one_of<T, float, double, std::string, fs::path>;

template <class T>
constexpr bool is_field() {
  if constexpr (has_elements<T>)
    return is_field<typename field_element<T>::type>();
  else if constexpr (whole_number_type<T> || plain_field<T>)
    return true;
  else
    return named_enum<T> || has_named_fields<T>;
}

template <class T>
constexpr void require_field() {
  static_assert(
    !std::is_enum_v<T> || named_enum<T>,
    "a field of TROUPE_FIELDS is an enum without a fixed type: write "
    "`enum class`");
  static_assert(
    std::is_enum_v<T> || is_field<T>(),
    "a field of TROUPE_FIELDS is a flag, a number, a std::string, an fs::path, "
    "an enum class, a struct with TROUPE_FIELDS of its own, or a "
    "std::optional, std::vector, std::array or std::map (by std::string) of "
    "these; what is computed from them, such as a tensor, is made in the loop");
  if constexpr (has_named_fields<T>)
    require_all_fields<T>();
}

template <class Archive>
struct archived_fields {
  template <class T>
  void operator()(const char* name, T& x) const {
    require_field<std::remove_const_t<T>>();
    if constexpr (is_field<std::remove_const_t<T>>())
      archive(cereal::make_nvp(name, x));
  }

  Archive& archive;
};

// *Enum* beside its value: without it GCC 12 merges the functions of unnamed
// namespaces in two files.
template <class Enum, Enum Value>
constexpr std::string_view enumerator_name() {
  // "... [with Enum = ...; Enum Value = ns::color::red; ...]", or
  // "(ns::color)7" for a value without a name.
  std::string_view text = __PRETTY_FUNCTION__;
  text.remove_prefix(text.find("Value = ") + 8);
  text = text.substr(0, text.find_first_of(";]"));
  if (text.find(')') != text.npos && text.starts_with('('))
    return {};
  auto colon = text.rfind(':');
  return colon == text.npos ? text : text.substr(colon + 1);
}

/// The enumerators of *Enum* from -1 to 126, by value.
template <named_enum Enum>
const std::vector<std::pair<Enum, std::string>>& enumerators() {
  using type = std::underlying_type_t<Enum>;
  static const auto result =
    []<int... Index>(std::integer_sequence<int, Index...>) {
    std::vector<std::pair<Enum, std::string>> all;
    [[maybe_unused]] auto add = [&all]<int I>(std::integral_constant<int, I>) {
      if constexpr (std::same_as<type, bool> ? I == 0 || I == 1
                                             : std::in_range<type>(I)) {
        constexpr auto value = static_cast<Enum>(I);
        constexpr auto name = enumerator_name<Enum, value>();
        if (!name.empty())
          all.emplace_back(value, name);
      }
    };
    (add(std::integral_constant<int, Index - 1>{}), ...);
    return all;
  }
  (std::make_integer_sequence<int, 128>{});
  return result;
}

template <class T>
config_shape shape_of() {
  config_shape result;
  if constexpr (has_elements<T>) {
    result.kind = field_element<T>::kind;
    if constexpr (requires { field_element<T>::size; })
      result.size = field_element<T>::size;
    result.parts = {shape_of<typename field_element<T>::type>()};
  } else if constexpr (has_named_fields<T>) {
    result.kind = config_kind::group;
    T none{};
    T::troupe_visit_fields(
      none, [&result]<class Field>(const char* name, const Field&) {
        result.names.emplace_back(name);
        result.parts.push_back(shape_of<Field>());
      });
  } else if constexpr (std::same_as<T, worker_count>) {
    result.kind = config_kind::count;
  } else if constexpr (std::same_as<T, bool>) {
    result.kind = config_kind::flag;
  } else if constexpr (std::integral<T>) {
    result.kind = config_kind::integer;
    result.min = static_cast<std::int64_t>(std::numeric_limits<T>::min());
    result.max = static_cast<std::uint64_t>(std::numeric_limits<T>::max());
  } else if constexpr (std::floating_point<T>) {
    result.kind = config_kind::real;
    result.largest = static_cast<double>(std::numeric_limits<T>::max());
  } else if constexpr (std::same_as<T, fs::path>) {
    result.kind = config_kind::path;
  } else if constexpr (std::is_enum_v<T>) {
    result.kind = config_kind::choice;
    for (auto& [value, name] : enumerators<T>())
      result.names.push_back(name);
  }
  return result;
}

template <class T>
config_value to_config_value(const T& x) {
  if constexpr (has_named_fields<T>) {
    config_value::table all;
    T::troupe_visit_fields(x, [&all](const char* name, const auto& field) {
      all.emplace_back(name, to_config_value(field));
    });
    return {std::move(all)};
  } else if constexpr (has_elements<T>) {
    using element = typename field_element<T>::type;
    if constexpr (field_element<T>::kind == config_kind::optional) {
      return x ? to_config_value(*x) : config_value{};
    } else if constexpr (field_element<T>::kind == config_kind::table) {
      config_value::table all;
      for (auto& [name, value] : x)
        all.emplace_back(name, to_config_value(value));
      return {std::move(all)};
    } else {
      config_value::list all;
      for (const element& value : x) // Those of a vector of flags are copies.
        all.push_back(to_config_value(value));
      return {std::move(all)};
    }
  } else if constexpr (std::same_as<T, worker_count>) {
    return {option_text(x)};
  } else if constexpr (std::same_as<T, bool>) {
    return {x};
  } else if constexpr (std::unsigned_integral<T>) {
    return {static_cast<std::uint64_t>(x)};
  } else if constexpr (std::integral<T>) {
    return {static_cast<std::int64_t>(x)};
  } else if constexpr (std::same_as<T, float>) {
    return {shortest_double(x)};
  } else if constexpr (std::floating_point<T>) {
    return {x};
  } else if constexpr (std::same_as<T, fs::path>) {
    return {x.string()};
  } else if constexpr (std::is_enum_v<T>) {
    for (auto& [value, name] : enumerators<T>())
      if (value == x)
        return {name};
    return {std::to_string(static_cast<std::underlying_type_t<T>>(x))};
  } else {
    return {x};
  }
}

/// Puts *from*, which has the shape of *T*, into *x*. Fields that are not in it
/// stay.
template <class T>
void assign_config(T& x, const config_value& from) {
  if constexpr (has_named_fields<T>) {
    auto& all = std::get<config_value::table>(from.value);
    T::troupe_visit_fields(x, [&all](std::string_view name, auto& field) {
      for (auto& [known, value] : all)
        if (known == name)
          assign_config(field, value);
    });
  } else if constexpr (has_elements<T>) {
    using element = typename field_element<T>::type;
    if constexpr (field_element<T>::kind == config_kind::optional) {
      // Not `emplace`: GCC 12 warns of an uninitialized value with -O3.
      T result;
      if (!std::holds_alternative<std::monostate>(from.value)) {
        element value{};
        assign_config(value, from);
        result = std::move(value);
      }
      x = std::move(result);
    } else if constexpr (field_element<T>::kind == config_kind::table) {
      x.clear();
      for (auto& [name, value] : std::get<config_value::table>(from.value))
        assign_config(x[name], value);
    } else if constexpr (requires { field_element<T>::size; }) {
      auto& all = std::get<config_value::list>(from.value);
      for (std::size_t i = 0; i < x.size(); ++i)
        assign_config(x[i], all.at(i));
    } else {
      x.clear();
      for (auto& value : std::get<config_value::list>(from.value)) {
        element one{};
        assign_config(one, value);
        x.push_back(std::move(one));
      }
    }
  } else if constexpr (std::same_as<T, worker_count>) {
    x = parse_count(std::get<std::string>(from.value)).value_or(x);
  } else if constexpr (std::same_as<T, bool>) {
    x = std::get<bool>(from.value);
  } else if constexpr (std::integral<T>) {
    auto large = std::get_if<std::uint64_t>(&from.value);
    x = large ? static_cast<T>(*large)
              : static_cast<T>(std::get<std::int64_t>(from.value));
  } else if constexpr (std::floating_point<T>) {
    x = static_cast<T>(std::get<double>(from.value));
  } else if constexpr (std::is_enum_v<T>) {
    for (auto& [value, name] : enumerators<T>())
      if (name == std::get<std::string>(from.value))
        x = value;
  } else {
    x = std::get<std::string>(from.value);
  }
}

/// Puts *texts* into the fields of *x*; see `with_texts`. Asks `x.validate()`,
/// if it has that and *is_whole*.
template <has_named_fields T>
expected<void> assign_texts(T& x, const field_texts& texts, bool is_whole) {
  TROUPE_TRY(auto values, with_texts(shape_of<T>(), to_config_value(x), texts));
  assign_config(x, values);
  if constexpr (requires(const T& y) { y.validate(); }) {
    try {
      if (is_whole)
        std::as_const(x).validate();
    } catch (const std::exception& why) {
      return failure(ec::invalid_config, why.what());
    }
  }
  return {};
}

} // namespace troupe::internal
