#include "troupe/trainers/parse_config.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <set>
#include <span>
#include <vector>

#include "troupe/runtime/environment.hpp"
#include "troupe/runtime/near_names.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/json.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

constexpr std::size_t max_config_file_bytes = std::size_t{64} * 1024 * 1024;
constexpr auto file_option = "config";

std::string type_text(const config_shape& x) {
  switch (x.kind) {
    case config_kind::flag:
      return "true|false";
    case config_kind::integer:
      return "integer";
    case config_kind::real:
      return "number";
    case config_kind::text:
      return "text";
    case config_kind::path:
      return "path";
    case config_kind::choice: {
      std::string result;
      for (auto& name : x.names)
        result += (result.empty() ? "" : "|") + name;
      return result;
    }
    case config_kind::list:
      return "list of " + type_text(x.parts[0])
             + (x.size ? ", " + std::to_string(*x.size) + " of them" : "");
    case config_kind::table:
      return "JSON object of " + type_text(x.parts[0]);
    case config_kind::group:
      return "JSON object";
    case config_kind::optional:
      return type_text(x.parts[0]) + ", or nothing";
  }
  return {};
}

/// The end of a sentence about a value that is not of shape *x*.
tl::unexpected<error> misfit(const std::string& where, const config_shape& x,
                             std::string_view got) {
  constexpr std::size_t most = 80;
  auto text = cut_text(got, most);
  return failure(ec::invalid_config,
                 concat(where, ": expected ", type_text(x), ", got '", text,
                        text.size() < got.size() ? "...'" : "'"));
}

expected<config_value> integer_value(const std::string& where,
                                     const config_shape& x, double given,
                                     std::string_view text) {
  auto out_of_range = [&] {
    return failure(
      ec::invalid_config,
      concat(where, ": ", text, " is out of range, ", x.min, " to ", x.max));
  };
  if (given != std::floor(given))
    return misfit(where, x, text);
  if (!(given >= -0x1p63 && given < 0x1p64))
    return out_of_range();
  if (given < 0) {
    auto value = static_cast<std::int64_t>(given);
    return value < x.min ? out_of_range()
                         : expected<config_value>{config_value{value}};
  }
  auto value = static_cast<std::uint64_t>(given);
  return value > x.max ? out_of_range()
                       : expected<config_value>{config_value{value}};
}

expected<config_value> integer_value(const std::string& where,
                                     const config_shape& x,
                                     const json::document& given) {
  auto text = given.dump();
  auto out_of_range =
    failure(ec::invalid_config, concat(where, ": ", text, " is out of range, ",
                                       x.min, " to ", x.max));
  if (given.is_number_unsigned()) {
    auto value = given.get<std::uint64_t>();
    return value > x.max ? expected<config_value>{out_of_range}
                         : expected<config_value>{config_value{value}};
  }
  if (given.is_number_integer()) {
    auto value = given.get<std::int64_t>();
    return value < x.min ? expected<config_value>{out_of_range}
                         : expected<config_value>{config_value{value}};
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

expected<config_value> path_value(const std::string& where,
                                  const std::string& given) {
  // A program may give names like ~x a meaning of its own.
  if (given != "~" && !given.starts_with("~/"))
    return config_value{given};
  return expanded(given, where + ": the path").map([](const fs::path& x) {
    return config_value{x.string()};
  });
}

std::string joined(const std::string& outer, const std::string& inner) {
  return outer.empty() ? inner : outer + '.' + inner;
}

/// The names of the fields on the way to a value, in a document.
struct place {
  std::string where; ///< What messages begin with: the file or the option.
  std::string name;  ///< Of the field, empty for the whole document.

  std::string text() const {
    return name.empty() ? where : where + ": " + name;
  }
  place below(const std::string& inner) const {
    return {where, joined(name, inner)};
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

/// What *given* lacks keeps the value of *old*; without that nothing may lack,
/// because there is no default to fall back to.
expected<config_value> group_from_json(const config_shape& x, const place& at,
                                       const json::document& given,
                                       const config_value* old) {
  if (!given.is_object())
    return misfit(at.text(), x, given.dump());
  for (auto& [name, value] : given.items())
    if (std::ranges::find(x.names, name) == x.names.end())
      return failure(ec::invalid_config,
                     at.where + ": there is no field '" + at.below(name).name
                       + "'"
                       + near_names(name, {x.names.begin(), x.names.end()}));
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
      for (auto& [word, value] :
           {std::pair{"NaN", std::nan("")}, std::pair{"Infinity", HUGE_VAL},
            std::pair{"-Infinity", -HUGE_VAL}})
        if (given == word)
          return config_value{value};
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
                     where + ": '" + twice + "' is there twice");
    return result;
  } catch (const json::document::exception& why) {
    return failure(ec::invalid_config, where + " is not JSON: " + why.what());
  }
}

expected<config_value> from_text(const config_shape& x,
                                 const std::string& where,
                                 const std::string& given);

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
  // Doubles do not hold all of them.
  std::uint64_t value = 0;
  std::int64_t negative = 0;
  auto begin = given.data(), end = given.data() + given.size();
  if (auto read = std::from_chars(begin, end, value);
      !given.empty() && read.ptr == end && read.ec == std::errc{})
    return integer_value(where, x, json::document(value));
  if (auto read = std::from_chars(begin, end, negative);
      !given.empty() && read.ptr == end && read.ec == std::errc{})
    return integer_value(where, x, json::document(negative));
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
    TROUPE_TRY(auto one,
               from_text(x.parts[0], where, given.substr(begin, end - begin)));
    all.push_back(std::move(one));
    begin = end + 1;
  }
  if (x.size && all.size() != *x.size)
    return misfit(where, x, given);
  return config_value{std::move(all)};
}

expected<config_value> from_text(const config_shape& x,
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
      return from_text(x.parts[0], where, given);
  }
  return misfit(where, x, given);
}

/// A field that an option or a variable can name.
struct leaf {
  std::string name; ///< As `optimizer.lr`.
  const config_shape* shape;
  config_value* value;
};

void collect_leaves(const config_shape& shape, config_value& value,
                    const std::string& name, std::vector<leaf>& out) {
  auto& fields = std::get<config_value::table>(value.value);
  for (std::size_t i = 0; i < shape.names.size(); ++i) {
    auto& part = shape.parts[i];
    auto inner = joined(name, shape.names[i]);
    if (part.kind == config_kind::group)
      collect_leaves(part, fields[i].second, inner, out);
    else
      out.push_back({inner, &part, &fields[i].second});
  }
}

std::vector<leaf> leaves_of(const config_shape& shape, config_value& values) {
  std::vector<leaf> result;
  collect_leaves(shape, values, {}, result);
  return result;
}

std::string variable_of(const std::string& prefix, const std::string& name) {
  auto result = prefix;
  for (auto c : name)
    if (c == '.')
      result += "__";
    else
      result += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return result;
}

/// Throws for names that two fields, or a field and `--help`, would share.
void check_names(const std::vector<leaf>& all) {
  std::set<std::string> taken{variable_of({}, file_option),
                              variable_of({}, "help")};
  for (auto& one : all)
    if (!taken.insert(variable_of({}, one.name)).second)
      throw std::logic_error{
        "parse_config: two fields are called '" + one.name
        + "' (--help and --config are its own, case does not count, and those "
          "that are given to a run are workers, gpu, storage, name, "
          "if_finished and hosts)"};
}

struct given_option {
  std::string name;
  std::string value;
};

/// What follows an option is its value, unless it is the next option; that of a
/// flag may be left out.
bool is_value(const config_shape* shape, std::string_view text) {
  if (shape && shape->kind == config_kind::flag)
    return text == "true" || text == "false";
  return !text.starts_with("--");
}

std::vector<std::string_view> names_of(const std::vector<leaf>& all) {
  std::vector<std::string_view> result;
  for (auto& one : all)
    result.push_back(one.name);
  return result;
}

/// One option, from *next* on, which is moved beyond it.
expected<given_option> next_option(std::span<const char* const>& next,
                                   const std::vector<leaf>& all) {
  std::string text{next.front()};
  next = next.subspan(1);
  if (text == "-h")
    text = "--help";
  if (!text.starts_with("--") || text.size() == 2)
    return failure(ec::invalid_config, "'" + text
                                         + "' is not an option: write --name "
                                           "value or --name=value");
  auto sign = std::min(text.find('='), text.size());
  given_option x{text.substr(2, sign - 2), {}};
  std::ranges::replace(x.name, '-', '_');
  auto found = std::ranges::find(all, x.name, &leaf::name);
  auto shape = found == all.end() ? nullptr : found->shape;
  if (!shape && x.name != file_option && x.name != "help")
    return failure(ec::invalid_config, "there is no option '--" + x.name + "'"
                                         + near_names(x.name, names_of(all)));
  if (sign < text.size()) {
    x.value = text.substr(sign + 1);
  } else if (x.name == "help") {
    x.value.clear();
  } else if (!next.empty() && is_value(shape, next.front())) {
    x.value = next.front();
    next = next.subspan(1);
  } else if (shape && shape->kind == config_kind::flag) {
    x.value = "true";
  } else {
    return failure(ec::invalid_config, "--" + x.name + " has no value");
  }
  return x;
}

expected<std::vector<given_option>>
options_of(int argc, const char* const* argv, const std::vector<leaf>& all) {
  std::vector<given_option> result;
  std::span next{argv, static_cast<std::size_t>(std::max(argc, 0))};
  if (!next.empty()) // the program
    next = next.subspan(1);
  while (!next.empty()) {
    TROUPE_TRY(auto x, next_option(next, all));
    if (std::ranges::find(result, x.name, &given_option::name) != result.end())
      return failure(ec::invalid_config, "--" + x.name + " is given twice");
    result.push_back(std::move(x));
  }
  return result;
}

expected<void> read_file_into(const config_shape& shape, config_value& values,
                              const fs::path& path) {
  TROUPE_TRY(auto text, read_file(path, max_config_file_bytes));
  TROUPE_TRY(auto document, parsed_json(path.string(), text));
  TROUPE_TRY(values, from_json(shape, {path.string(), {}}, document, &values));
  return {};
}

expected<void> read_environment_into(const std::vector<leaf>& all,
                                     const char* const* environment,
                                     const std::string& prefix) {
  for (; !prefix.empty() && environment && *environment; ++environment) {
    std::string_view entry{*environment};
    auto sign = std::min(entry.find('='), entry.size());
    std::string name{entry.substr(0, sign)};
    if (!name.starts_with(prefix))
      continue;
    auto found = std::ranges::find_if(
      all, [&](const leaf& x) { return variable_of(prefix, x.name) == name; });
    if (found == all.end()) {
      std::vector<std::string> known;
      for (auto& x : all)
        known.push_back(variable_of(prefix, x.name));
      return failure(ec::invalid_config,
                     "the variable " + name + " names no field"
                       + near_names(name, {known.begin(), known.end()}));
    }
    TROUPE_TRY(
      *found->value,
      from_text(*found->shape, name,
                std::string{entry.substr(std::min(sign + 1, entry.size()))}));
  }
  return {};
}

std::string default_text(const leaf& x) {
  if (!x.shape->initial.empty())
    return x.shape->initial;
  if (std::holds_alternative<std::monostate>(x.value->value))
    return "unset";
  if (auto text = std::get_if<std::string>(&x.value->value))
    return text->empty() ? "empty" : *text;
  if (auto number = std::get_if<double>(&x.value->value)) {
    std::string result;
    append_plain(result, *number);
    return result;
  }
  return json_text(*x.value);
}

std::string help_text(const std::vector<leaf>& all, const char* program,
                      const parse_options& options) {
  std::size_t width = 0, types = 0;
  for (auto& x : all) {
    width = std::max(width, x.name.size());
    types =
      std::max(types, std::min<std::size_t>(type_text(*x.shape).size(), 24));
  }
  auto result = concat("usage: ", program, " [options]\n");
  if (!options.about.empty())
    result += options.about + '\n';
  result += "\n";
  for (auto& x : all) {
    auto type = type_text(*x.shape);
    result += "  --" + x.name + std::string(width - x.name.size() + 2, ' ')
              + type
              + std::string(type.size() < types ? types - type.size() : 0, ' ')
              + "  [" + default_text(x) + "]\n";
  }
  result += "\nA field can also come from a JSON file (--config FILE)";
  if (!options.environment.empty() && !all.empty())
    result += " or the environment\n("
              + variable_of(options.environment, all.front().name)
              + "). The command line wins over the environment, that over "
                "the file";
  return result + ".\n";
}

std::string_view program_name(int argc, const char* const* argv) {
  if (argc < 1 || !argv[0])
    return "program";
  std::string_view path{argv[0]};
  return path.substr(path.rfind('/') + 1);
}

} // namespace

expected<parsed_fields> read_config(const config_shape& shape,
                                    config_value values, int argc,
                                    const char* const* argv,
                                    const char* const* environment,
                                    const parse_options& options) {
  auto all = leaves_of(shape, values);
  check_names(all);
  TROUPE_TRY(auto given, options_of(argc, argv, all));
  auto find = [&](std::string_view name) {
    return std::ranges::find(given, name, &given_option::name);
  };
  if (find("help") != given.end()) {
    std::string name{program_name(argc, argv)};
    auto help = help_text(all, name.c_str(), options);
    return parsed_fields{std::move(values), std::move(help)};
  }
  if (auto file = find(file_option); file != given.end()) {
    TROUPE_TRY_VOID(read_file_into(shape, values, file->value));
    given.erase(file);
    all = leaves_of(shape, values); // They were replaced.
  }
  TROUPE_TRY_VOID(read_environment_into(all, environment, options.environment));
  for (auto& x : given) {
    auto& field = *std::ranges::find(all, x.name, &leaf::name);
    TROUPE_TRY(*field.value, from_text(*field.shape, "--" + x.name, x.value));
  }
  return parsed_fields{std::move(values), {}};
}

expected<config_value> with_texts(const config_shape& shape,
                                  config_value values,
                                  const field_texts& texts) {
  auto all = leaves_of(shape, values);
  for (auto& [name, text] : texts) {
    auto found = std::ranges::find(all, name, &leaf::name);
    if (found == all.end())
      return failure(ec::invalid_config, "there is no field '" + name + "'"
                                           + near_names(name, names_of(all)));
    TROUPE_TRY(*found->value, from_text(*found->shape, name, text));
  }
  return values;
}

void exit_for_usage(int argc, const char* const* argv, std::string_view what) {
  auto text = concat(program_name(argc, argv), ": ", what,
                     " (--help lists all options)\n");
  std::fputs(text.c_str(), stderr);
  std::exit(2);
}

config_value read_config_or_exit(const config_shape& shape, config_value values,
                                 int argc, const char* const* argv,
                                 const parse_options& options) {
  auto result =
    read_config(shape, std::move(values), argc, argv, environ, options);
  if (!result)
    exit_for_usage(argc, argv, result.error().message);
  if (!result->help.empty()) {
    std::fputs(result->help.c_str(), stdout);
    std::exit(std::fflush(stdout) == 0 ? 0 : 1);
  }
  return std::move(result->values);
}

void add_launch_fields(config_shape& shape, config_value& values,
                       const launch_fields& launch, int workers) {
  auto more = shape_of<launch_fields>();
  more.parts[0].initial =
    std::to_string(workers) + ", with --gpu one for each GPU";
  more.parts[2].initial = launch.storage.string();
  more.parts[3].initial = launch.name.value_or("a new one");
  if (launch.hosts.empty())
    more.parts[5].initial = "the nodes of a Slurm job, or this host";
  auto& all = std::get<config_value::table>(values.value);
  auto added = to_config_value(launch);
  for (auto& one : std::get<config_value::table>(added.value))
    all.push_back(std::move(one));
  std::ranges::move(more.names, std::back_inserter(shape.names));
  std::ranges::move(more.parts, std::back_inserter(shape.parts));
}

} // namespace troupe::internal

namespace troupe {

expected<int> count_gpus(const train_options&) {
  auto gpus = static_cast<int>(internal::local_resources().gpus);
  if (gpus == 0)
    return failure(ec::invalid_config, "--gpu: CUDA shows this process no GPU");
  return gpus;
}

} // namespace troupe
