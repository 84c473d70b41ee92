#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/sweep/search_space.hpp"
#include "troupe/runtime/sweep/trial.hpp"

namespace troupe {

/// Chooses the params of trials. Derive from it for a strategy of your own.
///
/// All calls come from the thread of the sweep, one at a time; those before the
/// first trial of this start from the thread that starts it. A sweep that is
/// resumed first calls `tell` for each trial that has ended, in the order of
/// their ends, and then `ask` for those that no earlier start has asked for.
class searcher {
public:
  virtual ~searcher() = default;

  /// Its name and what its choices depend on, as "random, seed 7". A sweep is
  /// resumed by a searcher of the same name only.
  virtual std::string name() const = 0;

  /// Refuses what it was made with, or a *space* that it cannot choose from.
  /// Called before anything is written: the error is that of the sweep.
  virtual expected<void> validate(const search_space&) const { return {}; }

  /// The params of trial *index*: a value for each param of *space*. Nothing:
  /// there are no more, or none until a running trial has ended.
  virtual std::optional<metrics> ask(const search_space& space,
                                     std::size_t index) = 0;

  /// A trial has ended.
  virtual void tell(const trial&) {}

  /// Whether `ask` returns nothing after some number of trials. If not,
  /// `sweep_options::trials` must be set.
  virtual bool is_finite() const { return true; }

  /// The number of trials after which `ask` returns nothing, if it is known: if
  /// the host has cores for more, each trial gets more of them.
  virtual std::optional<std::size_t> count(const search_space&) const {
    return std::nullopt;
  }
};

/// Every combination of the values of the params; the last param changes first.
/// A range contributes *steps* values, at least one.
std::shared_ptr<searcher> grid_search(int steps = 5);

/// Independent params. The same *seed* chooses the same ones.
std::shared_ptr<searcher> random_search(std::uint64_t seed = 0);

/// Params that fill the space evenly: Sobol's sequence, shifted by *seed*.
/// Better than `random_search` with few params and some dozens of trials.
std::shared_ptr<searcher> sobol_search(std::uint64_t seed = 0);

} // namespace troupe
