#include "troupe/trainers/config/config_options.hpp"

#include <algorithm>
#include <set>
#include <stdexcept>

#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

void collect_options(const config_shape& shape, config_value& value,
                     const std::string& name, std::vector<config_option>& out) {
  auto& fields = std::get<config_value::table>(value.value);
  for (std::size_t i = 0; i < shape.names.size(); ++i) {
    auto& part = shape.parts[i];
    auto inner = dotted(name, shape.names[i]);
    if (part.kind == config_kind::group)
      collect_options(part, fields[i].second, inner, out);
    else
      out.push_back({inner, &part, &fields[i].second});
  }
}

std::string default_text(const config_option& x) {
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

} // namespace

std::vector<config_option> options_of(const config_shape& shape,
                                      config_value& values) {
  std::vector<config_option> result;
  collect_options(shape, values, {}, result);
  return result;
}

void check_names(const std::vector<config_option>& all) {
  std::set<std::string> taken;
  for (auto& one : all)
    if (!taken.insert(variable_of({}, one.name)).second)
      throw std::logic_error{"parse_config: two fields are called '" + one.name
                             + "' (case does not count, and '__' is a '.')"};
}

std::vector<std::string_view> names_of(const std::vector<config_option>& all) {
  std::vector<std::string_view> result;
  for (auto& one : all)
    result.push_back(one.name);
  return result;
}

std::string dotted(const std::string& outer, const std::string& inner) {
  return outer.empty() ? inner : outer + '.' + inner;
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
    case config_kind::choice:
      return joined(x.names, "|");
    case config_kind::list:
      return concat("list of ", type_text(x.parts[0]),
                    x.size ? concat(", ", *x.size, " of them") : "");
    case config_kind::table:
      return "JSON object of " + type_text(x.parts[0]);
    case config_kind::group:
      return "JSON object";
    case config_kind::optional:
      return type_text(x.parts[0]) + ", or nothing";
    case config_kind::count:
      return "integer or FEWEST:MOST";
  }
  return {};
}

std::string help_text(std::vector<config_option> all, std::string_view program,
                      const std::string& about,
                      const std::string& environment) {
  std::erase_if(all, [](const auto& x) { return x.shape->is_hidden; });
  std::size_t width = 0, types = 0;
  for (auto& x : all) {
    width = std::max(width, x.name.size());
    types =
      std::max(types, std::min<std::size_t>(type_text(*x.shape).size(), 24));
  }
  auto result = concat("usage: ", program, " [options]\n");
  if (!about.empty())
    result += about + '\n';
  result += "\n";
  for (auto& x : all) {
    auto type = type_text(*x.shape);
    result +=
      concat("  --", x.name, std::string(width - x.name.size() + 2, ' '), type,
             std::string(type.size() < types ? types - type.size() : 0, ' '),
             "  [", default_text(x), "]\n");
  }
  result += "\nA field can also come from a JSON file (--config FILE)";
  if (!environment.empty() && !all.empty())
    result += " or the environment\n("
              + variable_of(environment, all.front().name)
              + "). The command line wins over the environment, that over "
                "the file";
  return result + ".\n";
}

} // namespace troupe::internal
