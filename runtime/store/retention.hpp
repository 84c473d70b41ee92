#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "troupe/runtime/checkpoint/kept_checkpoint.hpp"
#include "troupe/runtime/config/run_config.hpp"

namespace troupe::internal {

/// Ranks checkpoints by score and says which may go.
///
/// Checkpoints without a usable score (metric missing, a text, NaN) rank below
/// all others, whatever the order; ties go to the newer. Without a score
/// attribute the newest is the best. Every list given is ordered oldest first,
/// and has `kept_checkpoint` or `reported_checkpoint`.
class retention {
public:
  /// Higher is better, whatever the order; unset if there is no usable one.
  using score_type = std::optional<double>;

  explicit retention(checkpoint_config config) : config_(std::move(config)) {}

  template <class Checkpoint>
  score_type score(const Checkpoint& x) const {
    if (config_.checkpoint_score_attribute.empty())
      return std::nullopt;
    auto value = x.values.find_number(config_.checkpoint_score_attribute);
    if (!value || std::isnan(*value))
      return std::nullopt;
    return config_.checkpoint_score_order == score_order::max ? *value
                                                              : -*value;
  }

  template <class Checkpoint>
  std::vector<score_type> scores(const std::vector<Checkpoint>& all) const {
    std::vector<score_type> result;
    for (auto& x : all)
      result.push_back(score(x));
    return result;
  }

  /// Positions in *scores*, worst first.
  std::vector<std::size_t> ranking(const std::vector<score_type>& scores) const;

  template <class Checkpoint>
  std::vector<std::size_t> ranking(const std::vector<Checkpoint>& all) const {
    return ranking(scores(all));
  }

  /// The best, at most `num_to_keep`, ascending by score.
  template <class Checkpoint>
  std::vector<Checkpoint> best(const std::vector<Checkpoint>& all) const {
    auto ranks = ranking(all);
    std::vector<Checkpoint> result;
    for (auto i = first_kept(all.size()); i < ranks.size(); ++i)
      result.push_back(all[ranks[i]]);
    return result;
  }

  /// Positions in *scores* of those that are neither among the best nor the
  /// latest, ascending.
  std::vector<std::size_t>
  to_evict(const std::vector<score_type>& scores) const;

  const checkpoint_config& config() const noexcept { return config_; }

private:
  std::size_t first_kept(std::size_t count) const noexcept;

  checkpoint_config config_;
};

/// Some of the checkpoints of a run, oldest first.
struct checkpoint_page {
  std::vector<kept_checkpoint> entries;
  bool more = false; ///< There are newer ones.
};

/// The checkpoints that a run has, in the order of their report indices. Knows
/// no file.
class checkpoint_registry {
public:
  explicit checkpoint_registry(checkpoint_config config,
                               std::vector<kept_checkpoint> all = {});

  /// Adds *x* and returns what retention takes out for it. An index that is not
  /// above the latest is `ec::conflict` (N3), as is a name in use.
  expected<std::vector<kept_checkpoint>> add(kept_checkpoint x);

  /// Forgets the checkpoint called *name*; false if there is none.
  bool remove(const std::string& name);

  const kept_checkpoint* find(const std::string& name) const noexcept;

  /// The one with the highest report index, nullptr if there is none.
  const kept_checkpoint* latest() const noexcept;

  /// Oldest first.
  const std::vector<kept_checkpoint>& all() const noexcept { return all_; }

  /// Those from report index *first* on: one at least, if there is one, and as
  /// many as take about *max_bytes* in a message.
  checkpoint_page page(std::uint64_t first, std::size_t max_bytes) const;

  /// At most `num_to_keep`, ascending by score.
  std::vector<kept_checkpoint> best() const { return retention_.best(all_); }

private:
  retention retention_;
  std::vector<kept_checkpoint> all_;
  /// The score of each: to look one up among many metrics takes too long for a
  /// commit.
  std::vector<retention::score_type> scores_;
};

} // namespace troupe::internal
