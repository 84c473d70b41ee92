#pragma once

#include <algorithm>
#include <cstdlib>
#include <regex>
#include <string>
#include <vector>

namespace troupe::internal::test {

/// The document *dom* as its reader sees it: without scripts, and without the
/// data that one of them draws.
inline std::string without_scripts(std::string dom) {
  const std::string end = "</script>";
  for (std::size_t begin; (begin = dom.find("<script")) != dom.npos;)
    dom.erase(begin, dom.find(end, begin) + end.size() - begin);
  return dom;
}

/// A place in a chart, in its own units; y goes down.
struct drawn_point {
  double x = 0;
  double y = 0;
};

/// One chart of a page, as the browser has drawn it. Values are placed by the
/// labels of the axes alone, as a reader of the page would do it.
class drawn_chart {
public:
  /// The chart called *name* in the document *dom*; empty if there is none.
  drawn_chart(const std::string& dom, const std::string& name) {
    auto begin = dom.find("<figure class=\"chart\" data-name=\"" + name + "\"");
    if (begin != dom.npos)
      markup_ = dom.substr(begin, dom.find("</figure>", begin) - begin);
    x_ticks_ = ticks("middle", true);
    y_ticks_ = ticks("end", false);
  }

  bool exists() const { return !markup_.empty(); }
  const std::string& markup() const { return markup_; }

  std::size_t x_tick_count() const { return x_ticks_.size(); }
  std::size_t y_tick_count() const { return y_ticks_.size(); }

  /// Where the axes say that values lie. Needs two labels each.
  double x_of(double value) const { return place(x_ticks_, value); }
  double y_of(double value) const { return place(y_ticks_, value); }

  /// The joined points of each curve, in order.
  std::vector<std::vector<drawn_point>> curves() const {
    return paths("curve");
  }

  /// The outline of each band: forth along the highest values, back along the
  /// lowest.
  std::vector<std::vector<drawn_point>> bands() const { return paths("band"); }

  /// Where each restart, checkpoint, best checkpoint or value that is not
  /// finite is marked.
  std::vector<double> marks(const std::string& kind) const {
    std::vector<double> result;
    for (auto& path : paths(kind))
      result.push_back(path.front().x);
    return result;
  }

  /// How often a curve is interrupted.
  std::size_t gaps() const {
    std::size_t moves = 0;
    for (auto& d : path_texts("curve"))
      moves += static_cast<std::size_t>(std::count(d.begin(), d.end(), 'M'));
    return moves - paths("curve").size();
  }

private:
  struct tick {
    double value = 0;
    double at = 0;
  };

  std::vector<tick> ticks(const std::string& anchor, bool horizontal) const {
    const std::regex label{"<text x=\"([-0-9.]+)\" y=\"([-0-9.]+)\"[^>]*"
                           "text-anchor=\""
                           + anchor + "\" data-value=\"([^\"]+)\""};
    std::vector<tick> result;
    for (std::sregex_iterator i{markup_.begin(), markup_.end(), label}, end;
         i != end; ++i)
      // Of the smallest numbers, too, which std::stod refuses.
      result.push_back({std::strtod((*i)[3].str().c_str(), nullptr),
                        std::stod((*i)[horizontal ? 1 : 2])});
    return result;
  }

  static double place(const std::vector<tick>& ticks, double value) {
    auto& a = ticks.at(0);
    auto& b = ticks.at(ticks.size() - 1);
    // Of halves, as the difference of two numbers may be none.
    auto share = (value / 2 - a.value / 2) / (b.value / 2 - a.value / 2);
    return a.at + share * (b.at - a.at);
  }

  std::vector<std::string> path_texts(const std::string& kind) const {
    const std::regex path{"<path class=\"" + kind
                          + "\"(?: data-name=\"[^\"]*\")? d=\"([^\"]+)\""};
    std::vector<std::string> result;
    for (std::sregex_iterator i{markup_.begin(), markup_.end(), path}, end;
         i != end; ++i)
      result.push_back((*i)[1]);
    return result;
  }

  std::vector<std::vector<drawn_point>> paths(const std::string& kind) const {
    static const std::regex point{"([-0-9.]+),([-0-9.]+)"};
    std::vector<std::vector<drawn_point>> result;
    for (auto& d : path_texts(kind)) {
      auto& points = result.emplace_back();
      for (std::sregex_iterator i{d.begin(), d.end(), point}, end; i != end;
           ++i)
        points.push_back({std::stod((*i)[1]), std::stod((*i)[2])});
    }
    return result;
  }

  std::string markup_;
  std::vector<tick> x_ticks_;
  std::vector<tick> y_ticks_;
};

} // namespace troupe::internal::test
