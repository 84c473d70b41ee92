#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// Writes Prometheus' text format 0.0.4.
class prometheus_text {
public:
  using labels = std::vector<std::pair<std::string_view, std::string>>;

  static constexpr std::string_view content_type =
    "text/plain; version=0.0.4; charset=utf-8";

  /// Begins the family *name*; *type* is `counter`, `gauge` or `histogram`. All
  /// its samples follow before the next family.
  void family(std::string_view name, std::string_view type,
              std::string_view help);

  /// A sample of the family, or of its part *suffix* such as `_sum`.
  void sample(const labels& of, double value, std::string_view suffix = {});
  void sample(const labels& of, std::uint64_t value,
              std::string_view suffix = {});

  const std::string& text() const noexcept { return text_; }

private:
  void begin_sample(const labels& of, std::string_view suffix);

  std::string family_;
  std::string text_;
};

} // namespace troupe
