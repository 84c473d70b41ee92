#include "troupe/callbacks/report_page/chart_data.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
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

/// Writes the groups of curves, then the axes that they share.
class curve_writer {
public:
  curve_writer(object_writer& out, const journal_digest& x)
    : out_(out), digest_(x) {
    auto curves = x.reported.size() + x.logged.size() + x.of_ranks.size() + 3;
    limit_ = std::clamp(max_all_points / curves, min_points, curve::max_points);
  }

  void write() {
    object_writer groups{out_.begin("groups")};
    append_group(groups.begin("metrics"), "report", digest_.reported);
    append_group(groups.begin("logged"), "step", digest_.logged);
    append_times(groups.begin("times"));
    groups.end();
    out_.array_field(
      "axes", axes_, [](std::string& out, auto* x) { out += *x; }, ",\n");
  }

private:
  using labeled = std::pair<std::string, const curve*>;

  struct chart {
    std::string title;
    const char* unit;
    std::vector<labeled> curves;
  };

  void append_group(std::string& out, const char* over,
                    const journal_digest::curve_map& all) {
    std::vector<chart> charts;
    for (auto& [name, x] : all)
      charts.push_back({name, "", {{name, &x}}});
    append_charts(out, over, charts);
  }

  void append_times(std::string& out) {
    std::vector<chart> all;
    if (!digest_.step_times.points().empty()) {
      all.push_back(step_times());
      all.push_back(
        {"Wait for the slowest rank", "s", {{"wait", &digest_.waits}}});
    }
    if (!digest_.intervals.points().empty())
      all.push_back(
        {"From report to report", "s", {{"interval", &digest_.intervals}}});
    append_charts(out, "report", all);
  }

  chart step_times() const {
    if (digest_.ranks.size() > journal_digest::max_rank_curves)
      return {
        "Step time over all ranks", "s", {{"all ranks", &digest_.step_times}}};
    chart result{"Step time of each rank", "s", {}};
    for (auto& x : digest_.of_ranks)
      result.curves.emplace_back(concat("rank ", result.curves.size()), &x);
    return result;
  }

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
      append_curve(list, one.first, *one.second);
    });
    to.end();
  }

  void append_curve(std::string& out, const std::string& label,
                    const curve& x) {
    auto all = x.reduced(limit_);
    object_writer to{out};
    append_name(to.begin("label"), label);
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
  const journal_digest& digest_;
  std::size_t limit_ = 0; ///< Points of one curve.
  std::map<std::string, std::size_t> known_axes_;
  std::vector<const std::string*> axes_; ///< In order of their numbers.
};

} // namespace

void append_charts(json::object_writer& out, const journal_digest& x) {
  curve_writer{out, x}.write();
}

} // namespace troupe::internal
