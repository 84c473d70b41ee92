#include "troupe/trainers/config/config_reader.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <initializer_list>
#include <limits>
#include <set>
#include <string_view>

#include "troupe/runtime/config/scaling_config.hpp"
#include "troupe/runtime/environment.hpp"
#include "troupe/runtime/near_names.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/json.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/whole_number.hpp"

namespace troupe::internal {

namespace {

constexpr std::size_t max_config_file_bytes = std::size_t{64} * 1024 * 1024;

/// The end of a sentence about a value that is not of shape *x*.
tl::unexpected<error> misfit(const std::string& where, const config_shape& x,
                             std::string_view got) {
  constexpr std::size_t most = 80;
  auto text = cut_text(got, most);
  return failure(ec::invalid_config,
                 concat(where, ": expected ", type_text(x), ", got '", text,
                        text.size() < got.size() ? "...'" : "'"));
}

template <std::integral Min, std::integral Max>
tl::unexpected<error> out_of_range(const std::string& where,
                                   std::string_view text, Min min, Max max) {
  return failure(
    ec::invalid_config,
    concat(where, ": ", text, " is out of range, ", min, " to ", max));
}

tl::unexpected<error> out_of_range(const std::string& where,
                                   const config_shape& x,
                                   std::string_view text) {
  return out_of_range(where, text, x.min, x.max);
}

expected<config_value> integer_value(const std::string& where,
                                     const config_shape& x, double given,
                                     std::string_view text) {
  if (given != std::floor(given))
    return misfit(where, x, text);
  if (!(given >= -0x1p63 && given < 0x1p64))
    return out_of_range(where, x, text);
  if (given < 0) {
    auto value = static_cast<std::int64_t>(given);
    return value < x.min ? expected<config_value>{out_of_range(where, x, text)}
                         : config_value{value};
  }
  auto value = static_cast<std::uint64_t>(given);
  return value > x.max ? expected<config_value>{out_of_range(where, x, text)}
                       : config_value{value};
}

expected<config_value> integer_value(const std::string& where,
                                     const config_shape& x,
                                     const json::document& given) {
  auto text = given.dump();
  if (given.is_number_unsigned()) {
    auto value = given.get<std::uint64_t>();
    return value > x.max ? expected<config_value>{out_of_range(where, x, text)}
                         : config_value{value};
  }
  if (given.is_number_integer()) {
    auto value = given.get<std::int64_t>();
    return value < x.min ? expected<config_value>{out_of_range(where, x, text)}
                         : config_value{value};
  }
  if (given.is_number_float()) // 1e3 is one, too.
    return integer_value(where, x, given.get<double>(), text);
  return misfit(where, x, text);
}

expected<config_value> real_value(const std::string& where,
                                  const config_shape& x, double given) {
  if (std::isfinite(given) && std::abs(given) > x.largest)
    return failure(ec::invalid_config,
                   where + ": the number is out of range for a float");
  return config_value{given};
}

expected<config_value> choice_value(const std::string& where,
                                    const config_shape& x,
                                    std::string_view given) {
  if (std::ranges::find(x.names, given) == x.names.end())
    return misfit(where, x, given);
  return config_value{std::string{given}};
}

/// Whether *text* is an integer of any size.
bool is_integer(std::string_view text) {
  return is_digits(text.substr(text.starts_with('-') ? 1 : 0));
}

/// The end of a sentence about a text that `parse_count` does not take.
tl::unexpected<error> count_problem(const std::string& where,
                                    const config_shape& x,
                                    std::string_view given) {
  auto colon = given.find(':');
  auto is_range = colon != given.npos;
  auto first = given.substr(0, colon);
  auto last = is_range ? given.substr(colon + 1) : first;
  if (!is_integer(first) || !is_integer(last))
    return misfit(where, x, given);
  auto least = is_range ? 1 : 0;
  for (auto text : {first, last})
    if (auto number = whole_number<int>(text); !number || *number < least)
      return out_of_range(where, text, least, std::numeric_limits<int>::max());
  return failure(ec::invalid_config,
                 concat(where, ": FEWEST is above MOST in '", given, '\''));
}

expected<config_value> count_value(const std::string& where,
                                   const config_shape& x,
                                   const std::string& given) {
  auto count = parse_count(given);
  if (!count)
    return count_problem(where, x, given);
  return config_value{option_text(*count)};
}

expected<config_value> path_value(const std::string& where,
                                  const std::string& given) {
  // A program may give names like ~x a meaning of its own.
  if (given != "~" && !given.starts_with("~/"))
    return config_value{given};
  return expanded(given, where + ": the path").map([](const fs::path& x) {
    return config_value{x.string()};
  });
}

/// The names of the fields on the way to a value, in a document.
struct place {
  std::string where; ///< What messages begin with: the file or the option.
  std::string name;  ///< Of the field, empty for the whole document.

  std::string text() const {
    return name.empty() ? where : where + ": " + name;
  }
  place below(const std::string& inner) const {
    return {where, dotted(name, inner)};
  }
};

expected<config_value> from_json(const config_shape& x, const place& at,
                                 const json::document& given,
                                 const config_value* old);

expected<config_value> list_from_json(const config_shape& x, const place& at,
                                      const json::document& given) {
  if (!given.is_array() || (x.size && given.size() != *x.size))
    return misfit(at.text(), x, given.dump());
  config_value::list all;
  for (std::size_t i = 0; i < given.size(); ++i) {
    TROUPE_TRY(auto one, from_json(x.parts[0], at.below(std::to_string(i)),
                                   given[i], nullptr));
    all.push_back(std::move(one));
  }
  return config_value{std::move(all)};
}

expected<config_value> table_from_json(const config_shape& x, const place& at,
                                       const json::document& given) {
  if (!given.is_object())
    return misfit(at.text(), x, given.dump());
  config_value::table all;
  for (auto& [name, value] : given.items()) {
    TROUPE_TRY(auto one, from_json(x.parts[0], at.below(name), value, nullptr));
    all.emplace_back(name, std::move(one));
  }
  return config_value{std::move(all)};
}

/// Fields that *given* lacks keep their values of *old*. Without *old* there
/// are no defaults to fall back to, so all fields must be given.
expected<config_value> group_from_json(const config_shape& x, const place& at,
                                       const json::document& given,
                                       const config_value* old) {
  if (!given.is_object())
    return misfit(at.text(), x, given.dump());
  for (auto& [name, value] : given.items())
    if (std::ranges::find(x.names, name) == x.names.end())
      return failure(
        ec::invalid_config,
        concat(at.where, ": there is no field '", at.below(name).name, '\'',
               near_names(name, {x.names.begin(), x.names.end()})));
  config_value::table all;
  for (std::size_t i = 0; i < x.names.size(); ++i) {
    auto& name = x.names[i];
    auto before =
      old ? &std::get<config_value::table>(old->value)[i].second : nullptr;
    auto found = given.find(name);
    if (found == given.end()) {
      // A group inside a list or an optional begins with its own defaults:
      // `assign_config` leaves what is not mentioned.
      if (before)
        all.emplace_back(name, *before);
      continue;
    }
    TROUPE_TRY(auto one, from_json(x.parts[i], at.below(name), *found, before));
    all.emplace_back(name, std::move(one));
  }
  return config_value{std::move(all)};
}

expected<config_value> from_json(const config_shape& x, const place& at,
                                 const json::document& given,
                                 const config_value* old) {
  switch (x.kind) {
    case config_kind::flag:
      if (given.is_boolean())
        return config_value{given.get<bool>()};
      break;
    case config_kind::integer:
      return integer_value(at.text(), x, given);
    case config_kind::real:
      if (given.is_number())
        return real_value(at.text(), x, given.get<double>());
      if (given.is_string())
        if (auto value = json_words.value(given.get<std::string>()))
          return config_value{*value};
      break;
    case config_kind::text:
      if (given.is_string())
        return config_value{given.get<std::string>()};
      break;
    case config_kind::path:
      if (given.is_string())
        return path_value(at.text(), given.get<std::string>());
      break;
    case config_kind::choice:
      if (given.is_string())
        return choice_value(at.text(), x, given.get<std::string>());
      break;
    case config_kind::list:
      return list_from_json(x, at, given);
    case config_kind::table:
      return table_from_json(x, at, given);
    case config_kind::group:
      return group_from_json(x, at, given, old);
    case config_kind::optional:
      if (given.is_null())
        return config_value{};
      return from_json(x.parts[0], at, given, nullptr);
    case config_kind::count:
      if (given.is_string() || given.is_number_integer())
        return count_value(at.text(), x,
                           given.is_string() ? given.get<std::string>()
                                             : given.dump());
      break;
  }
  return misfit(at.text(), x, given.dump());
}

/// *text* as JSON, in which no object has a name twice.
expected<json::document> parsed_json(const std::string& where,
                                     std::string_view text) {
  std::vector<std::set<std::string>> names;
  std::string twice;
  using event = json::document::parse_event_t;
  auto watch = [&](int, event what, json::document& x) {
    if (what == event::object_start)
      names.emplace_back();
    else if (what == event::object_end)
      names.pop_back();
    else if (what == event::key
             && !names.back().insert(x.get<std::string>()).second)
      twice = x.get<std::string>();
    return true;
  };
  try {
    auto result = json::document::parse(text, watch);
    if (!twice.empty())
      return failure(ec::invalid_config,
                     where + ": '" + twice + "' is given twice");
    return result;
  } catch (const json::document::exception& x) {
    std::string_view why{x.what()}; // It begins with the library's own name.
    if (why.starts_with("[json.exception."))
      why.remove_prefix(std::min(why.find(']') + 2, why.size()));
    return failure(ec::invalid_config, concat(where, " is not JSON: ", why));
  }
}

expected<config_value> real_from_text(const config_shape& x,
                                      const std::string& where,
                                      const std::string& given) {
  double value = 0;
  auto [end, problem] =
    std::from_chars(given.data(), given.data() + given.size(), value);
  if (end != given.data() + given.size() || given.empty())
    return misfit(where, x, given);
  if (problem == std::errc::result_out_of_range)
    return failure(ec::invalid_config,
                   where + ": " + given + " is out of range");
  return x.kind == config_kind::real ? real_value(where, x, value)
                                     : integer_value(where, x, value, given);
}

expected<config_value> integer_from_text(const config_shape& x,
                                         const std::string& where,
                                         const std::string& given) {
  // A double cannot hold all integers of 64 bits.
  if (auto value = whole_number<std::uint64_t>(given))
    return integer_value(where, x, json::document(*value));
  if (auto negative = whole_number<std::int64_t>(given))
    return integer_value(where, x, json::document(*negative));
  return real_from_text(x, where, given);
}

expected<config_value> list_from_text(const config_shape& x,
                                      const std::string& where,
                                      const std::string& given) {
  if (given.starts_with('[')) {
    TROUPE_TRY(auto document, parsed_json(where, given));
    return from_json(x, {where, {}}, document, nullptr);
  }
  config_value::list all;
  for (std::size_t begin = 0; begin < given.size();) {
    auto end = std::min(given.find(',', begin), given.size());
    TROUPE_TRY(auto one, value_from_text(x.parts[0], where,
                                         given.substr(begin, end - begin)));
    all.push_back(std::move(one));
    begin = end + 1;
  }
  if (x.size && all.size() != *x.size)
    return misfit(where, x, given);
  return config_value{std::move(all)};
}

} // namespace

expected<config_value> value_from_text(const config_shape& x,
                                       const std::string& where,
                                       const std::string& given) {
  switch (x.kind) {
    case config_kind::flag:
      if (given == "true" || given == "1")
        return config_value{true};
      if (given == "false" || given == "0")
        return config_value{false};
      return misfit(where, x, given);
    case config_kind::integer:
      return integer_from_text(x, where, given);
    case config_kind::real:
      return real_from_text(x, where, given);
    case config_kind::text:
      return config_value{given};
    case config_kind::path:
      return path_value(where, given);
    case config_kind::choice:
      return choice_value(where, x, given);
    case config_kind::list:
      return list_from_text(x, where, given);
    case config_kind::table:
    case config_kind::group: {
      TROUPE_TRY(auto document, parsed_json(where, given));
      return from_json(x, {where, {}}, document, nullptr);
    }
    case config_kind::optional:
      if (given.empty())
        return config_value{};
      return value_from_text(x.parts[0], where, given);
    case config_kind::count:
      return count_value(where, x, given);
  }
  return misfit(where, x, given);
}

expected<void> read_file_into(const config_shape& shape, config_value& values,
                              const fs::path& path) {
  TROUPE_TRY(auto text, read_file(path, max_config_file_bytes));
  TROUPE_TRY(auto document, parsed_json(path.string(), text));
  TROUPE_TRY(values, from_json(shape, {path.string(), {}}, document, &values));
  return {};
}

expected<void> read_environment_into(const std::vector<config_option>& all,
                                     const char* const* environment,
                                     const std::string& prefix) {
  for (; !prefix.empty() && environment && *environment; ++environment) {
    std::string_view entry{*environment};
    auto sign = std::min(entry.find('='), entry.size());
    std::string name{entry.substr(0, sign)};
    if (!name.starts_with(prefix))
      continue;
    auto found = std::ranges::find_if(all, [&](const config_option& x) {
      return variable_of(prefix, x.name) == name;
    });
    if (found == all.end()) {
      std::vector<std::string> known;
      for (auto& x : all)
        known.push_back(variable_of(prefix, x.name));
      return failure(ec::invalid_config,
                     "the variable " + name + " does not name a field"
                       + near_names(name, {known.begin(), known.end()}));
    }
    TROUPE_TRY(*found->value,
               value_from_text(
                 *found->shape, name,
                 std::string{entry.substr(std::min(sign + 1, entry.size()))}));
  }
  return {};
}

expected<config_value> with_texts(const config_shape& shape,
                                  config_value values,
                                  const field_texts& texts) {
  auto all = options_of(shape, values);
  for (auto& [name, text] : texts) {
    auto found = std::ranges::find(all, name, &config_option::name);
    if (found == all.end())
      return failure(ec::invalid_config, "there is no field '" + name + "'"
                                           + near_names(name, names_of(all)));
    TROUPE_TRY(*found->value, value_from_text(*found->shape, name, text));
  }
  return values;
}

} // namespace troupe::internal
