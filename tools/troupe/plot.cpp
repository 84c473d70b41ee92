#include <langinfo.h>

#include <algorithm>
#include <array>
#include <clocale>
#include <cmath>
#include <memory>
#include <vector>

#include "tools/troupe/runs.hpp"
#include "tools/troupe/verbs.hpp"
#include "troupe/callbacks/report_page/journal_digest.hpp"
#include "troupe/runtime/near_names.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/store/journal_reader.hpp"
#include "troupe/runtime/text.hpp"

// troupe plot: curves in the terminal.

namespace troupe::tool {

using namespace internal;

namespace {

struct plot_arguments {
  std::shared_ptr<run_arguments> run;
  std::vector<std::string> names;
  int width = 0; ///< 0: of the terminal.
  int height = 12;
  bool ascii = false;
};

/// Dots on a terminal: a character has two by four of them in braille, one in
/// ASCII.
class canvas {
public:
  canvas(int columns, int rows, bool ascii)
    : columns_(columns), rows_(rows), ascii_(ascii),
      cells_(static_cast<std::size_t>(columns * rows)) {}

  int width() const noexcept { return ascii_ ? columns_ : columns_ * 2; }
  int height() const noexcept { return ascii_ ? rows_ : rows_ * 4; }

  /// From the upper left.
  void set(int x, int y) {
    static constexpr std::array<std::array<unsigned, 2>, 4> bits{
      {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}};
    auto column = ascii_ ? x : x / 2, row = ascii_ ? y : y / 4;
    auto& cell = cells_[static_cast<std::size_t>(row * columns_ + column)];
    cell |= ascii_ ? 1U
                   : bits.at(static_cast<std::size_t>(y % 4))
                       .at(static_cast<std::size_t>(x % 2));
  }

  void line(int x0, int y0, int x1, int y1) {
    auto steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
    for (int i = 0; i <= steps; ++i)
      set(x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps);
  }

  std::string row(int index) const {
    std::string out;
    for (int i = 0; i < columns_; ++i) {
      auto cell = cells_[static_cast<std::size_t>(index * columns_ + i)];
      if (cell == 0) {
        out += ' ';
      } else if (ascii_) {
        out += '*';
      } else { // U+2800 and the bits of its dots
        out += '\xe2';
        out += static_cast<char>(0xa0 + (cell >> 6));
        out += static_cast<char>(0x80 + (cell & 0x3f));
      }
    }
    return out;
  }

private:
  int columns_, rows_;
  bool ascii_;
  std::vector<unsigned> cells_;
};

bool terminal_takes_utf8() {
  std::setlocale(LC_CTYPE, "");
  return std::string_view{::nl_langinfo(CODESET)} == "UTF-8";
}

struct range {
  double low = 0, high = 0;

  void add(double x) {
    low = std::min(low, x);
    high = std::max(high, x);
  }

  /// Where *x* is between 0 and *last*.
  int place(double x, int last) const {
    auto half = high / 2 - low / 2; // the whole may be above all numbers
    auto part = half > 0 ? (x / 2 - low / 2) / half : 0.5;
    return static_cast<int>(std::lround(part * last));
  }
};

std::string plot_of(const std::string& name, const curve& data, int columns,
                    const plot_arguments& args) {
  auto title = concat(painted(one_line(name), color::bold), "  last ",
                      number_text(data.last().mean));
  std::vector<curve_point> points;
  for (auto& x : data.points())
    if (std::isfinite(x.mean))
      points.push_back(x);
  if (points.empty())
    return title + "\n  no finite value\n";
  range x{points[0].x, points[0].x}, y{points[0].mean, points[0].mean};
  for (auto& p : points) {
    x.add(p.x);
    y.add(p.mean);
  }
  auto top = number_text(y.high), bottom = number_text(y.low);
  auto margin = static_cast<int>(std::max(top.size(), bottom.size()));
  canvas dots{std::max(columns - margin - 2, 8), args.height, args.ascii};
  auto column = [&](const curve_point& p) {
    return x.place(p.x, dots.width() - 1);
  };
  auto row = [&](const curve_point& p) {
    return dots.height() - 1 - y.place(p.mean, dots.height() - 1);
  };
  for (std::size_t i = 0; i < points.size(); ++i) {
    auto& p = points[i];
    dots.set(column(p), row(p));
    if (i > 0 && points[i - 1].segment == p.segment)
      dots.line(column(points[i - 1]), row(points[i - 1]), column(p), row(p));
  }
  auto bar = args.ascii ? "|" : "│";
  auto out = title + '\n';
  for (int i = 0; i < args.height; ++i) {
    auto label = i == 0 ? top : i + 1 == args.height ? bottom : "";
    out.append(static_cast<std::size_t>(margin) - label.size(), ' ');
    auto dotted = dots.row(i);
    dotted.erase(dotted.find_last_not_of(' ') + 1);
    out += painted(label, color::dim) + ' ' + bar + painted(dotted, color::cyan)
           + '\n';
  }
  auto first = number_text(x.low), last = number_text(x.high);
  out.append(static_cast<std::size_t>(margin + 2), ' ');
  out += painted(first, color::dim);
  auto blank = columns - margin - 2 - static_cast<int>(first.size())
               - static_cast<int>(last.size());
  out.append(static_cast<std::size_t>(std::max(blank, 1)), ' ');
  return out + painted(last, color::dim) + '\n';
}

json_object json_of(const curve& data) {
  auto result = json_object::object();
  for (auto name : {"x", "seconds", "mean", "min", "max"})
    result[name] = json_object::array();
  for (auto& p : data.points()) {
    result["x"].push_back(p.x);
    result["seconds"].push_back(p.seconds);
    result["mean"].push_back(number_json(p.mean));
    result["min"].push_back(number_json(p.min));
    result["max"].push_back(number_json(p.max));
  }
  return result;
}

expected<journal_digest> read_digest(const fs::path& journal, int& code) {
  journal_digest digest;
  TROUPE_TRY(auto reader, journal_reader::open(journal));
  TROUPE_TRY_VOID(
    reader.read_rest([&](const journal_entry& x) { digest.add(x); },
                     [&](const error& x) {
                       complain(x.message);
                       code = failed;
                     }));
  return digest;
}

expected<int> plot(plot_arguments x) {
  TROUPE_TRY(auto path, x.run->path());
  auto code = done;
  TROUPE_TRY(auto digest, read_digest(path / run_layout::journal, code));
  std::vector<std::string> known;
  for (auto curves : {&digest.reported, &digest.logged})
    for (auto& [name, data] : *curves)
      known.push_back(name);
  auto all = known.empty() ? "none" : joined(known);
  if (x.names.empty())
    return failure(ec::invalid_argument, "which metric? The run has " + all);
  if (!terminal_takes_utf8())
    x.ascii = true;
  auto columns = x.width > 0 ? x.width : columns_of_stdout().value_or(80);
  auto result = json_object::object();
  std::string out;
  for (auto& name : x.names) {
    auto curves =
      digest.reported.contains(name) ? &digest.reported : &digest.logged;
    auto found = curves->find(name);
    if (found == curves->end())
      return failure(ec::invalid_argument,
                     "no report has a number '" + name + "'; the run has " + all
                       + did_you_mean(name, {known.begin(), known.end()}));
    if (x.run->json)
      result[utf8_text(name)] = json_of(found->second);
    else
      out +=
        (out.empty() ? "" : "\n") + plot_of(name, found->second, columns, x);
  }
  if (x.run->json)
    print_json({{"metrics", std::move(result)}});
  else
    print(out);
  return code;
}

} // namespace

verb plot_verb() {
  return {
    "plot", "Draws curves of a run's metrics in the terminal.",
    [](CLI::App& app) -> action {
      auto x = std::make_shared<plot_arguments>();
      x->run = add_run_arguments(app);
      app
        .add_option("METRIC", x->names,
                    "its name; several are drawn one below the other")
        ->option_text(" ")
        ->check(not_empty);
      app
        .add_option("--width", x->width,
                    "columns (default: those of the terminal, or 80)")
        ->option_text("COLUMNS")
        ->check(CLI::Range(20, 1000));
      app.add_option("--height", x->height, "rows of a curve (default: 12)")
        ->option_text("ROWS")
        ->check(CLI::Range(2, 200));
      app.add_flag("--ascii", x->ascii,
                   "draw with ASCII (default where the locale is not UTF-8)");
      app.footer(
        "A curve is the mean over all ranks, over the report index; a restart "
        "interrupts\nit. What a loop logged beside its reports has its own "
        "steps.");
      return [x] { return plot(*x); };
    }};
}

} // namespace troupe::tool
