#include "troupe/callbacks/encoding/text.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>

#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

// Parsers recurse, so deeper groups keep their slashes.
constexpr int max_depth = 32;

void append_double(std::string& out, double x, json_non_finite how) {
  if (std::isfinite(x))
    append_number(out, x);
  else if (how == json_non_finite::null)
    out += "null";
  else
    out += concat('"', json_words.of(x), '"');
}

// Writes the groups of an ordered map of metrics as nested objects.
class nested_members {
public:
  using iterator = metrics::const_iterator;

  nested_members(std::string& out, const metrics& all, json_non_finite how)
    : out_(out), all_(all), how_(how) {}

  // Names from *begin* to *end* share their first *prefix* bytes, which the
  // enclosing objects already show.
  void write(iterator begin, iterator end, std::size_t prefix, int depth) {
    for (auto i = begin; i != end;) {
      if (i != begin)
        out_ += ',';
      const std::string_view name = i->first;
      auto group = group_of(name, prefix, depth);
      if (group.empty()) {
        append_json_string(out_, name.substr(prefix));
        out_ += ':';
        append_json(out_, i->second, how_);
        ++i;
        continue;
      }
      auto last = std::find_if_not(
        i, end, [&](const auto& x) { return x.first.starts_with(group); });
      append_json_string(out_, group.substr(prefix, group.size() - prefix - 1));
      out_ += ":{";
      write(i, last, group.size(), depth + 1);
      out_ += '}';
      i = last;
    }
  }

private:
  // *name* up to and including the slash that ends its group; empty: no group.
  std::string_view group_of(std::string_view name, std::size_t prefix,
                            int depth) const {
    auto slash = name.find('/', prefix);
    if (slash == name.npos || slash == prefix || slash + 1 == name.size()
        || depth == max_depth || all_.contains(name.substr(0, slash)))
      return {};
    return name.substr(0, slash + 1);
  }

  std::string& out_;
  const metrics& all_;
  json_non_finite how_;
};

} // namespace

void append_json(std::string& out, const metric_value& x, json_non_finite how) {
  append_scalar(
    out, x.variant(), [&](double number) { append_double(out, number, how); },
    [&](std::string_view text) { append_json_string(out, text); });
}

void append_json(std::string& out, const metrics& x, json_non_finite how) {
  out += '{';
  nested_members{out, x, how}.write(x.begin(), x.end(), 0, 0);
  out += '}';
}

} // namespace troupe::internal
