#pragma once

#include <concepts>
#include <stop_token>
#include <utility>

#include "troupe/runtime/store/result.hpp"
#include "troupe/trainers/run_request.hpp"

namespace caf {

class actor_system;

} // namespace caf

namespace troupe {

class run_handle;

/// Runs *request* from start to end; blocks the calling thread. SIGINT stops it
/// in order; `run_config::preempt_signals` let ranks save a last checkpoint
/// first. Never throws: the result has the error.
result fit(const internal::run_request& request) noexcept;

/// How a `data_parallel_trainer` runs its loop.
struct train_options {
  scaling_config scaling;
  run_config run;

  /// For `parse_config`: ranks of a program that is to use all GPUs.
  friend expected<int> count_gpus(const train_options&);
};

/// Runs one train loop on every rank of a group and manages the group.
///
/// A loop is a function or a captureless lambda that takes `(train_context&)`
/// or `(train_context&, const Config&)`, where *Config* is any
/// default-constructible type that cereal serializes. A closure is wrapped as
/// `in_process_loop{closure}`.
class data_parallel_trainer {
public:
  template <class F>
  explicit data_parallel_trainer(F loop, train_options options = {})
    : request_{std::move(options.scaling), std::move(options.run),
               internal::train_loop::make(std::move(loop),
                                          internal::no_backend{},
                                          internal::no_config{})} {}

  template <class F, class Config>
    requires(!std::same_as<Config, train_options>)
  data_parallel_trainer(F loop, const Config& config,
                        train_options options = {})
    : request_{std::move(options.scaling), std::move(options.run),
               internal::train_loop::make(std::move(loop),
                                          internal::no_backend{}, config)} {}

  /// Runs the loop and waits for the end. Never throws: the result has the
  /// error, and everything that was stored.
  result fit() const noexcept { return troupe::fit(request_); }

  /// Starts the run in *system*, which must load CAF's middleman and outlive
  /// the handle, and returns before its ranks are up. Include
  /// "troupe/actors.hpp" to call it.
  ///
  /// Waits for ranks of an earlier start that have not ended. A stop of
  /// *preempted* ends that: `ec::stopped`, and the run has been preempted. One
  /// that comes after that preempts the run of the handle; one that comes after
  /// the return does nothing.
  expected<run_handle> start(caf::actor_system& system,
                             const std::stop_token& preempted = {}) const;

  /// For parts of Troupe that start the run themselves.
  friend const internal::run_request&
  request_of(const data_parallel_trainer& x) noexcept {
    return x.request_;
  }

protected:
  explicit data_parallel_trainer(internal::run_request request)
    : request_(std::move(request)) {}

private:
  internal::run_request request_;
};

} // namespace troupe
