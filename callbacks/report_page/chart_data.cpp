#include "troupe/callbacks/report_page/chart_data.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "troupe/callbacks/report_page/page_text.hpp"
#include "troupe/runtime/storage/json.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

using json::object_writer;
using points = std::vector<curve_point>;

/// Over all curves: about three megabytes.
constexpr std::size_t max_all_points = 60'000;
constexpr std::size_t min_points = 50;

/// Over all runs that are compared.
constexpr std::size_t max_compared_curves = 2'000;

struct labeled_curve {
  std::string label;
  const curve* data;
  std::optional<std::size_t> run; ///< Of several that are compared.
};

struct chart {
  std::string title;
  const char* unit;
  std::vector<labeled_curve> curves;
};

/// Writes groups of charts, then the axes that their curves share.
class curve_writer {
public:
  /// *curves*: about how many there are.
  curve_writer(object_writer& out, std::size_t curves)
    : out_(out), groups_(out.begin("groups")),
      limit_(std::clamp(max_all_points / std::max<std::size_t>(curves, 1),
                        min_points, curve::max_points)) {}

  void append_group(const char* name, const char* over,
                    const std::vector<chart>& charts) {
    append_charts(groups_.begin(name), over, charts);
  }

  void end() {
    groups_.end();
    out_.array_field(
      "axes", axes_, [](std::string& out, auto* x) { out += *x; }, ",\n");
  }

private:
  void append_charts(std::string& out, const char* over,
                     const std::vector<chart>& all) {
    object_writer group{out};
    group.field("over", over);
    group.array_field(
      "charts", all,
      [this](std::string& to, const chart& x) { append_chart(to, x); }, ",\n");
    group.end();
  }

  void append_chart(std::string& out, const chart& x) {
    object_writer to{out};
    append_name(to.begin("title"), x.title);
    to.field("unit", x.unit);
    to.array_field("curves", x.curves, [this](std::string& list, auto& one) {
      append_curve(list, one);
    });
    to.end();
  }

  void append_curve(std::string& out, const labeled_curve& one) {
    auto& x = *one.data;
    auto all = x.reduced(limit_);
    object_writer to{out};
    append_name(to.begin("label"), one.label);
    if (one.run)
      to.field("run", *one.run);
    to.field("axis", axis_of(all));
    numbers(to, "mean", all, 6, &curve_point::mean);
    if (std::ranges::any_of(all, [](auto& p) { return p.min < p.max; })) {
      numbers(to, "min", all, 6, &curve_point::min);
      numbers(to, "max", all, 6, &curve_point::max);
    }
    if (x.total().not_finite > 0)
      positions(to, "bad", all,
                [&](std::size_t i) { return all[i].not_finite > 0; });
    append_total(to.begin("total"), x);
    to.end();
  }

  static void append_total(std::string& out, const curve& x) {
    auto& total = x.total();
    append_number(out += '[', x.last().mean, 6);
    append_number(out += ',', x.last().x, 12);
    append_number(out += ',', total.min, 6);
    append_number(out += ',', total.max, 6);
    (out += ',') += concat(total.samples, ']');
  }

  // Curves of the same reports share an axis.
  std::size_t axis_of(const points& all) {
    std::string text;
    object_writer to{text};
    numbers(to, "x", all, 12, [](auto& p) { return rounded(p.x, 10); });
    numbers(to, "t", all, 12, [](auto& p) { return rounded(p.seconds, 1e3); });
    positions(to, "gaps", all, [&](std::size_t i) {
      return i > 0 && all[i].segment != all[i - 1].segment;
    });
    if (std::ranges::any_of(all, [](auto& p) { return p.samples > 1; }))
      to.array_field("of", all, [](std::string& out, auto& p) {
        out += std::to_string(p.samples);
      });
    to.end();
    auto [i, is_new] = known_axes_.emplace(std::move(text), axes_.size());
    if (is_new)
      axes_.push_back(&i->first);
    return i->second;
  }

  template <class Get>
  static void numbers(object_writer& to, std::string_view name,
                      const points& all, int digits, Get get) {
    to.array_field(name, all, [&](std::string& out, auto& p) {
      append_number(out, std::invoke(get, p), digits);
    });
  }

  /// The positions in *all* for which *is* is true.
  template <class Is>
  static void positions(object_writer& to, std::string_view name,
                        const points& all, Is is) {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (is(i))
        found.push_back(i);
    to.array_field(name, found, [](std::string& out, std::size_t i) {
      out += std::to_string(i);
    });
  }

  object_writer& out_;
  object_writer groups_;
  std::size_t limit_; ///< Points of one curve.
  std::map<std::string, std::size_t> known_axes_;
  std::vector<const std::string*> axes_; ///< In order of their numbers.
};

std::vector<chart> charts_of(const journal_digest::curve_map& all) {
  std::vector<chart> result;
  for (auto& [name, x] : all)
    result.push_back({name, "", {{name, &x, {}}}});
  return result;
}

chart chart_of_step_times(const journal_digest& x) {
  if (x.ranks.size() > journal_digest::max_rank_curves)
    return {
      "Step time over all ranks", "s", {{"all ranks", &x.step_times, {}}}};
  chart result{"Step time of each rank", "s", {}};
  for (auto& one : x.of_ranks)
    result.curves.push_back({concat("rank ", result.curves.size()), &one, {}});
  return result;
}

std::vector<chart> charts_of_times(const journal_digest& x) {
  std::vector<chart> result;
  if (!x.step_times.points().empty()) {
    result.push_back(chart_of_step_times(x));
    result.push_back(
      {"Wait for the slowest rank", "s", {{"wait", &x.waits, {}}}});
  }
  if (!x.intervals.points().empty())
    result.push_back(
      {"From report to report", "s", {{"interval", &x.intervals, {}}}});
  return result;
}

/// The first *limit* charts by name, and how many there would be.
std::pair<std::vector<chart>, std::size_t>
compared_charts(std::span<const labeled_digest> all,
                journal_digest::curve_map journal_digest::*field,
                std::size_t limit) {
  std::map<std::string_view, chart> by_name;
  for (std::size_t run = 0; run < all.size(); ++run)
    for (auto& [name, x] : (*all[run].digest).*field) {
      auto i = by_name.try_emplace(name, chart{name, "", {}}).first;
      i->second.curves.push_back({all[run].label, &x, run});
    }
  std::vector<chart> result;
  for (auto& entry : by_name)
    if (result.size() < limit)
      result.push_back(std::move(entry.second));
  return {std::move(result), by_name.size()};
}

std::size_t count_curves(const std::vector<chart>& charts) {
  std::size_t result = 0;
  for (auto& x : charts)
    result += x.curves.size();
  return result;
}

} // namespace

void append_charts(json::object_writer& out, const journal_digest& x) {
  curve_writer writer{out, x.reported.size() + x.logged.size()
                             + x.of_ranks.size() + 3};
  writer.append_group("metrics", "report", charts_of(x.reported));
  writer.append_group("logged", "step", charts_of(x.logged));
  writer.append_group("times", "report", charts_of_times(x));
  writer.end();
}

std::size_t append_compared_charts(json::object_writer& out,
                                   std::span<const labeled_digest> all) {
  auto limit = std::max<std::size_t>(
    max_compared_curves / std::max<std::size_t>(all.size(), 1), 1);
  auto [reported, reported_count] =
    compared_charts(all, &journal_digest::reported, limit);
  auto [logged, logged_count] =
    compared_charts(all, &journal_digest::logged, limit - reported.size());
  curve_writer writer{out, count_curves(reported) + count_curves(logged)};
  writer.append_group("metrics", "report", reported);
  writer.append_group("logged", "step", logged);
  writer.end();
  return reported_count + logged_count - reported.size() - logged.size();
}

} // namespace troupe::internal
