#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/runtime/sweep/sweep_ledger.hpp"
#include "troupe/runtime/sweep/sweep_store.hpp"
#include "troupe/trainers/run_request.hpp"
#include "troupe/trainers/sweep/sweep.hpp"
#include "troupe/trainers/train_loop.hpp"

namespace troupe::internal {

/// What a sweep is to run: what the user gave, and the run of each trial made
/// from it. The three references must outlive it.
class sweep_plan {
public:
  sweep_plan(const run_request& request, const search_space& space,
             const sweep_options& options);

  /// Refuses what can never work; writes nothing. Notes what the ranks of all
  /// trials, also of later ones, have from the program.
  expected<void> check();

  /// Most trials under way.
  int at_once() const;

  /// How many trials there are, if that is known. An earlier start may have
  /// begun more.
  std::optional<std::size_t> trials() const;

  /// The loop with the params of *x*; refuses those that do not fit, as its
  /// config says.
  expected<train_loop> loop_for(const trial& x) const;

  /// The run of *x* with *loop*, in the sweep's folder *path*, which divides
  /// the cores with the others of *at_once* trials unless it claims some. Calls
  /// the user's `prepare`.
  expected<run_request> request_for(const trial& x, train_loop loop,
                                    const fs::path& path, int at_once) const;

  fs::path storage_path() const;
  /// Whether the next start finds the sweep of this one.
  bool has_name() const noexcept { return request_.run.name.has_value(); }
  sweep_description description() const;
  sweep_start start() const;
  sweep_rules rules() const;

  const search_space& space() const noexcept { return space_; }
  const sweep_options& options() const noexcept { return options_; }
  const std::shared_ptr<searcher>& chooser() const noexcept {
    return searcher_;
  }
  /// Whether `compare.html` is wanted: runs without pages have none together.
  bool makes_page() const noexcept { return request_.run.report_page; }
  bool is_quiet() const noexcept { return request_.run.quiet; }

private:
  expected<void> prepare(const trial& x, run_config& run) const;
  /// The loop's config with each param at one end of its range, so that two
  /// starts differ by the rest alone.
  std::string fixed_config() const;

  const run_request& request_;
  const search_space& space_;
  const sweep_options& options_;
  std::shared_ptr<searcher> searcher_;
  std::shared_ptr<const inheritance> inherited_;
};

} // namespace troupe::internal
