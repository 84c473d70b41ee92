#pragma once

#include <array>
#include <cstdint>

#include "troupe/callbacks/encoding/number_text.hpp"
#include "troupe/callbacks/prometheus/prometheus_text.hpp"

namespace troupe {

/// Counts durations by size, from a millisecond to ten minutes.
class prometheus_histogram {
public:
  void add(double seconds) {
    for (std::size_t i = 0; i < limits.size(); ++i)
      if (seconds <= limits[i])
        ++counts_[i];
    ++count_;
    sum_ += seconds;
  }

  void write(prometheus_text& out, const prometheus_text::labels& of) const {
    auto bucket = [&](std::string limit, std::uint64_t count) {
      auto all = of;
      all.emplace_back("le", std::move(limit));
      out.sample(all, count, "_bucket");
    };
    for (std::size_t i = 0; i < limits.size(); ++i) {
      std::string limit;
      append_number(limit, limits[i]);
      bucket(std::move(limit), counts_[i]);
    }
    bucket("+Inf", count_);
    out.sample(of, sum_, "_sum");
    out.sample(of, count_, "_count");
  }

private:
  static constexpr std::array limits{0.001, 0.003, 0.01, 0.03, 0.1,   0.3,
                                     1.0,   3.0,   10.0, 30.0, 100.0, 600.0};

  std::array<std::uint64_t, limits.size()> counts_{}; ///< Cumulative.
  std::uint64_t count_ = 0;
  double sum_ = 0;
};

} // namespace troupe
