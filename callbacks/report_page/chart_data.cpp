#include "troupe/callbacks/report_page/chart_data.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <span>
#include <utility>

#include "troupe/callbacks/report_page/html_text.hpp"

namespace troupe {

namespace {

using points = std::vector<curve_point>;

/// Over all curves: about three megabytes.
constexpr std::size_t max_all_points = 60'000;
constexpr std::size_t min_points = 50;
constexpr std::size_t max_checkpoint_marks = 200;
constexpr std::size_t max_attempt_marks = 500;

/// *write* appends one element of *all*; elements get commas between them.
template <class Range, class Write>
void append_list(std::string& out, const Range& all, Write write) {
  out += '[';
  auto separator = "";
  for (auto& x : all) {
    out += separator;
    write(x);
    separator = ",";
  }
  out += ']';
}

template <class Get>
std::string list_of(const points& all, int digits, Get get) {
  std::string out;
  append_list(out, all, [&](auto& x) { out += number_text(get(x), digits); });
  return out;
}

/// Positions in *all* for which *is* is true.
template <class Is>
std::string positions_in(const points& all, Is is) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (is(i))
      found.push_back(i);
  std::string out;
  append_list(out, found, [&](auto i) { out += std::to_string(i); });
  return out;
}

double rounded(double x, double per) {
  return std::round(x * per) / per;
}

class writer {
public:
  writer(const journal_digest& x, const std::string& best)
    : digest_(x), best_(best) {
    auto curves = x.reported.size() + x.logged.size() + x.of_ranks.size() + 3;
    limit_ = std::clamp(max_all_points / curves, min_points, curve::max_points);
  }

  std::string document() {
    auto groups = group("metrics", "report", digest_.reported) + ','
                  + group("logged", "step", digest_.logged) + ',' + times();
    auto begin = digest_.first_time.value_or(journal_digest::time_point{});
    std::chrono::duration<double, std::milli> begin_ms =
      begin.time_since_epoch();
    return "{\"begin\":" + number_text(std::round(begin_ms.count()), 15)
           + ",\n\"attempts\":" + attempts()
           + ",\n\"checkpoints\":" + checkpoints() + ",\n\"axes\":[" + axes_
           + "],\n\"groups\":{" + groups + "}}";
  }

private:
  std::string attempts() const {
    auto& all = digest_.attempts;
    auto first = all.size() - std::min(all.size(), max_attempt_marks);
    std::string out;
    append_list(out, std::span{all}.subspan(first), [&](auto& x) {
      out += "{\"n\":" + std::to_string(x.number)
             + ",\"x\":" + std::to_string(x.first_report) + ",\"t\":"
             + number_text(rounded(digest_.seconds_at(x.time), 1e3), 12) + '}';
    });
    return out;
  }

  // Of many, every second, third, … one and the best.
  std::string checkpoints() const {
    auto& all = digest_.checkpoints;
    auto stride = all.size() / max_checkpoint_marks + 1;
    std::vector<const journal_digest::checkpoint*> shown;
    for (std::size_t i = 0; i < all.size(); ++i)
      if ((all.size() - 1 - i) % stride == 0 || all[i].name == best_)
        shown.push_back(&all[i]);
    std::string out;
    append_list(out, shown, [&](auto* x) {
      out += "{\"name\":" + script_text(x->name)
             + ",\"x\":" + std::to_string(x->index) + ",\"t\":"
             + number_text(rounded(digest_.seconds_at(x->time), 1e3), 12)
             + (x->name == best_ ? ",\"best\":true}" : "}");
    });
    return out;
  }

  std::string group(const char* name, const char* over,
                    const journal_digest::curve_map& curves) {
    std::string out = group_begin(name, over);
    append_list(out, curves, [&](auto& entry) {
      auto& [title, x] = entry;
      out += chart_begin(title, "") + curve_text(title, x) + "]}";
    });
    return out + '}';
  }

  std::string times() {
    std::string out = group_begin("times", "report") + '[';
    auto separator = "";
    auto chart = [&](const char* title, const std::string& curves) {
      out += separator + chart_begin(title, "s") + curves + "]}";
      separator = ",";
    };
    if (!digest_.step_times.points().empty()) {
      chart(has_rank_curves() ? "Step time of each rank"
                              : "Step time over all ranks",
            rank_curves());
      chart("Wait for the slowest rank", curve_text("wait", digest_.waits));
    }
    if (!digest_.intervals.points().empty())
      chart("From report to report", curve_text("interval", digest_.intervals));
    return out + "]}";
  }

  bool has_rank_curves() const {
    return digest_.ranks.size() <= journal_digest::max_rank_curves;
  }

  std::string rank_curves() {
    if (!has_rank_curves())
      return curve_text("all ranks", digest_.step_times);
    std::string out;
    for (std::size_t rank = 0; rank < digest_.of_ranks.size(); ++rank)
      out +=
        (rank == 0 ? "" : ",")
        + curve_text("rank " + std::to_string(rank), digest_.of_ranks[rank]);
    return out;
  }

  static std::string group_begin(const char* name, const char* over) {
    return std::string{"\""} + name + "\":{\"over\":\"" + over
           + "\",\"charts\":";
  }

  static std::string chart_begin(const std::string& title, const char* unit) {
    return "\n{\"title\":" + script_text(shortened(title, max_name_bytes))
           + ",\"unit\":\"" + unit + "\",\"curves\":[";
  }

  std::string curve_text(const std::string& label, const curve& x) {
    auto all = x.reduced(limit_);
    auto out = "{\"label\":" + script_text(shortened(label, max_name_bytes))
               + ",\"axis\":" + std::to_string(axis_of(all))
               + ",\"mean\":" + list_of(all, 6, [](auto& p) { return p.mean; });
    if (std::ranges::any_of(all, [](auto& p) { return p.min < p.max; }))
      out += ",\"min\":" + list_of(all, 6, [](auto& p) { return p.min; })
             + ",\"max\":" + list_of(all, 6, [](auto& p) { return p.max; });
    if (x.total().not_finite > 0)
      out += ",\"bad\":" + positions_in(all, [&](std::size_t i) {
               return all[i].not_finite > 0;
             });
    return out + '}';
  }

  // Curves of the same reports share an axis.
  std::size_t axis_of(const points& all) {
    auto out =
      "\n{\"x\":" + list_of(all, 12, [](auto& p) { return rounded(p.x, 10); })
      + ",\"t\":"
      + list_of(all, 12, [](auto& p) { return rounded(p.seconds, 1e3); })
      + ",\"gaps\":" + positions_in(all, [&](std::size_t i) {
          return i > 0 && all[i].segment != all[i - 1].segment;
        });
    if (std::ranges::any_of(all, [](auto& p) { return p.samples > 1; }))
      out += ",\"of\":" + list_of(all, 12, [](auto& p) {
               return static_cast<double>(p.samples);
             });
    out += '}';
    auto [i, is_new] = known_axes_.emplace(std::move(out), known_axes_.size());
    if (is_new)
      axes_ += (i->second == 0 ? "" : ",") + i->first;
    return i->second;
  }

  const journal_digest& digest_;
  const std::string& best_;
  std::size_t limit_ = 0; ///< Points of one curve.
  std::string axes_;
  std::map<std::string, std::size_t> known_axes_;
};

} // namespace

std::string chart_data(const journal_digest& x, const std::string& best) {
  return writer{x, best}.document();
}

} // namespace troupe
