#include "table.hpp"

#include <cstdio>
#include <string_view>

#include "numbers.hpp"
#include "troupe/runtime/storage/json.hpp"

namespace troupe::internal::bench {

namespace {

void print_line(const std::string& name, const std::string& value,
                const std::string& unit, const std::string& reference,
                const std::string& ratio, const std::string& reach,
                const std::string& reached) {
  std::printf("%-22s %9s %-13s %9s %7s  %-20s %s\n", name.c_str(),
              value.c_str(), unit.c_str(), reference.c_str(), ratio.c_str(),
              reach.c_str(), reached.c_str());
  std::fflush(stdout);
}

std::string text(const std::optional<double>& x) {
  return x ? short_number(*x) : "-";
}

void add_number(json::object_writer& out, std::string_view name,
                const std::optional<double>& x) {
  if (x)
    out.field(name, metric_value{*x});
  else
    out.null_field(name);
}

void append_row(std::string& out, const row& x) {
  auto& [what, got] = x;
  json::object_writer object{out, ", "};
  object.field("name", what.name);
  add_number(object, "value", got.value);
  object.field("unit", what.unit);
  add_number(object, "reference", got.reference);
  add_number(object, "ratio", got.ratio());
  object.end();
}

} // namespace

void print_head() {
  print_line("name", "value", "unit", "reference", "ratio", "reach", "reached");
}

void print_row(const row& x) {
  auto& [what, got] = x;
  print_line(what.name, short_number(got.value), what.unit, text(got.reference),
             text(got.ratio()), what.reach.text(what.unit),
             what.reach.reached_by(got) ? "yes" : "NO");
}

std::string to_json(const std::vector<row>& rows) {
  std::string result;
  json::append_list(result, rows, append_row, ",\n ");
  return result + '\n';
}

} // namespace troupe::internal::bench
